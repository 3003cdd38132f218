"""`memattn archs`: the architectures of this plugin, their sizes and their flags.

    memattn archs                        all of them; CONTROL stands for each of the controls
    memattn archs 'abc_mlp_*' 't5*'      those with these names
    memattn archs abc_mlp_transformer    one of them, with its flags and their defaults

fairseq-train --help shows none of these flags, because it ends before it reads --arch.
"""

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.errors import flag, like
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import write_json

if TYPE_CHECKING:
    from fairseq_memattn.cli.shared.architectures import Architecture, Option

TASKS = {
    "encoder-decoder": "translation",
    "language model": "language_modeling",
    "encoder": "masked_lm --criterion masked_lm",
}
DOCUMENTS = "document_translation --source-context 3 --target-context 0"
SHOWN = "abc_mlp"  # the control whose parameters are counted where CONTROL stands for all
HEAD = ["architecture", "model", "layers", "size", "feed-forward", "heads", "parameters", "memory"]
NOTE = "Parameters: without those that depend on the vocabulary"
INDENT = " " * 6
CONTROLS_NOTE = f"; where CONTROL stands, those of {SHOWN}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add(
        "names",
        "an architecture, or a pattern with * and ? in quotes (default: all)",
        nargs="*",
        metavar="NAME",
    )
    add.switch(
        "--all-flags", "with one architecture: also the flags that it has from fairseq's models"
    )
    add("--json", "also write the architectures with all flags to this file", type=Path)


def run(args: argparse.Namespace) -> None:
    check_outputs({"--json": args.json})
    from fairseq_memattn.cli.shared.architectures import architectures

    found = matching(architectures(), args.names)
    if args.all_flags and len(found) > 1:
        raise ValueError(f"--all-flags needs one architecture, but there are {len(found)}")
    if args.json:
        write_json(args.json, [as_json(one) for one in found])
    if len(found) == 1:
        print(described(found[0], args.all_flags, args.user_dir or "fairseq_memattn"))
    else:
        print(listed(found, args.names))


def matching(found: "Sequence[Architecture]", names: Sequence[str]) -> "list[Architecture]":
    """Raises ValueError for a name or a pattern that fits none."""
    chosen = []
    for name in names or ["*"]:
        fitting = [one for one in found if fnmatchcase(one.name, name)]
        if not fitting:
            known = [one.name for one in found]
            raise ValueError(f"NAME: there is no architecture {name}{like(name, known)}")
        chosen += [one for one in fitting if one not in chosen]
    return chosen


def listed(found: "Sequence[Architecture]", names: Sequence[str]) -> str:
    """A table with a line for each; without names, one for each pattern."""
    shown = [one for one in found if names or one.control in ("", SHOWN)]
    rows = [row(one, one.name if names else one.pattern) for one in shown]
    text = [table([HEAD, *rows], left=2), "", f"{NOTE}{'' if names else CONTROLS_NOTE}."]
    if not names:
        text += ["", *the_controls(found), "", "`memattn archs NAME` shows the flags of one."]
    return "\n".join(text)


def row(one: "Architecture", name: str) -> list[str]:
    from fairseq_memattn.cli.shared.architectures import parameters

    count = f"{parameters(one.name) / 1e6:.1f} M"
    return [name, one.kind, one.layers, one.size, one.feed_forward, one.heads, count, memory(one)]


def the_controls(found: "Sequence[Architecture]") -> list[str]:
    """What CONTROL stands for, and what some of the controls do not have."""
    patterns: dict[str, set[str]] = {}
    for one in found:
        if one.control:
            patterns.setdefault(one.pattern, set()).add(one.control)
    every = sorted(set().union(*patterns.values()))
    lines = textwrap.wrap(f"CONTROL is one of {', '.join(every)}.", width())
    for name in every:
        lacking = [pattern for pattern, controls in patterns.items() if name not in controls]
        if lacking:
            lines += textwrap.wrap(f"{name} has no {', '.join(lacking)}.", width())
    return lines


def described(one: "Architecture", all_flags: bool, user_dir: str) -> str:
    """One architecture: sizes, flags, and how a command begins."""
    from fairseq_memattn.cli.shared.architectures import options, parameters

    sizes = f"{one.layers} layers of {one.size}, feed-forward {one.feed_forward}, {one.heads} heads"
    shown = [option for option in options(one.name) if option.own or all_flags]
    lines = [
        one.name,
        *textwrap.wrap(one.summary, width()),
        "",
        f"{one.kind}: {sizes}",
        *([f"memory: {memory(one)}"] if one.slots else []),
        f"parameters: {parameters(one.name):,}, without those that depend on the vocabulary",
        "",
        f"fairseq-train DATA --user-dir {user_dir} --task {task_of(one)} --arch {one.name}",
        "",
        "flags and their defaults:"
        if all_flags
        else "flags and their defaults (--all-flags shows those of fairseq's models as well):",
    ]
    return "\n".join([*lines, *(line for option in shown for line in explained(option))])


def task_of(one: "Architecture") -> str:
    """The task that trains an architecture, with context for one that reads several sequences."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    several = getattr(ARCH_MODEL_REGISTRY[one.name], "takes_sequences", False)
    return DOCUMENTS if several else TASKS[one.kind]


def explained(option: "Option") -> list[str]:
    head = f"  {option.flag}"
    if option.choices:
        head += f" {{{','.join(option.choices)}}}"
    if option.default not in (None, "") and option.default is not False:
        head += f"  [{option.default}]"
    return [
        head,
        *textwrap.wrap(option.help, width(), initial_indent=INDENT, subsequent_indent=INDENT),
    ]


def memory(one: "Architecture") -> str:
    return ", ".join(f"{flag(option)} {value}" for option, value in one.slots.items())


def as_json(one: "Architecture") -> dict[str, Any]:
    from fairseq_memattn.cli.shared.architectures import options, parameters

    fields = asdict(one) | {"control": one.control, "parameters": parameters(one.name)}
    return fields | {"flags": [asdict(option) for option in options(one.name)]}


def width() -> int:
    """Columns of the terminal, at most 100."""
    return min(shutil.get_terminal_size().columns, 100)
