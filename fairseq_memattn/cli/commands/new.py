"""`memattn new`: writes a commented starting point, which works as it is."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from shlex import quote

from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.files import write_text

TEMPLATES = files("fairseq_memattn") / "templates"
LANGUAGE = r"[A-Za-z0-9][A-Za-z0-9_.@-]*"
PLACEHOLDER = re.compile(r"@([A-Z]+)@")
KINDS = {
    "corpus": "a script that prepares a parallel corpus with documents, and examples of raw files",
    "recipe": "the training of a model of documents as YAML, and a script that trains, translates "
    "and scores",
    "control": "a control strategy of your own, for --user-dir and for PyTorch",
}
EXECUTABLE = 0o755
NEXT = {
    "corpus": "python {folder}/prepare.py, then memattn new recipe NAME --data {folder}/data",
    "recipe": "{folder}/run.sh",
    "control": "fairseq-train DATA --user-dir {folder} --arch abc_{name}_transformer "
    "--abc-cross-slots 32 --abc-causal-slots 8 ...; memattn archs abc_{name}_transformer "
    "--user-dir {folder} shows its flags",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parsers = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind, summary in KINDS.items():
        add = Options(parsers.add_parser(kind, help=summary, description=f"Write {summary}."))
        meaning = "a new or empty folder; its name is that of what is written"
        add.file("folder", meaning, metavar="FOLDER")
        if kind == "recipe":
            add(
                "--data",
                "the folder of `memattn prepare own-corpus` (default: %(default)s)",
                type=Path,
                default=Path("corpus"),
            )
            add(
                "--langs",
                "the languages of the data (default: de en)",
                nargs=2,
                default=("de", "en"),
                metavar=("SOURCE", "TARGET"),
            )


def run(args: argparse.Namespace) -> None:
    check(args)
    name = args.folder.absolute().name
    values = {"NAME": name, "CLASS": class_name(name), "FOLDER": str(args.folder)}
    if args.kind == "recipe":
        source, target = args.langs
        values |= {"DATA": str(args.data.absolute()), "SOURCE": source, "TARGET": target}
        # In a script of the shell.
        values |= {name: quote(values[name]) for name in ("DATA", "FOLDER")}
    args.folder.mkdir(parents=True, exist_ok=True)
    for template in sorted((TEMPLATES / args.kind).iterdir(), key=lambda entry: entry.name):
        path = args.folder / template.name.removesuffix(".txt")
        write_text(path, filled(template.read_text("utf-8"), values.__getitem__))
        if path.suffix == ".sh":
            path.chmod(EXECUTABLE)
        print(f"wrote {path}")
    print(f"\nnext: {NEXT[args.kind].format(folder=args.folder, name=name)}")


def check(args: argparse.Namespace) -> None:
    if args.folder.exists() and not args.folder.is_dir():
        raise ValueError(f"FOLDER {args.folder} is a file")
    if args.folder.is_dir() and any(args.folder.iterdir()):
        raise ValueError(f"FOLDER {args.folder} must be new or empty, but has files")
    if any(character in str(args.folder) for character in '"\\\n'):
        raise ValueError(
            f"FOLDER {args.folder} must have no double quotation mark, \\ or line break"
        )
    if args.kind == "recipe":
        for language in args.langs:
            if not re.fullmatch(LANGUAGE, language):
                raise ValueError(f"--langs must be such as en and zh_CN, but one is {language}")
        check_data(args.data, args.langs)
    if args.kind == "control":
        check_control(args.folder.absolute().name)


def check_data(folder: Path, languages: Sequence[str]) -> None:
    """Raises ValueError for prepared data of other languages; its absence is a note.

    folder: of `memattn prepare own-corpus`, which may follow
    """
    if not (folder / "bin").is_dir():
        if any(folder.glob("dict.*.txt")):
            raise ValueError(f"--data must be the folder that {folder} is in, {folder.parent}")
        say(f"note: {folder} is no folder of `memattn prepare own-corpus` yet")
        return
    for language in languages:
        if not (folder / "bin" / f"dict.{language}.txt").is_file():
            raise ValueError(f"--langs: {folder}/bin has no dict.{language}.txt")


def class_name(name: str) -> str:
    """`my_control` is MyControl, and `mine` is MineControl."""
    return (
        "".join(part.capitalize() for part in name.removesuffix("_control").split("_")) + "Control"
    )


def check_control(name: str) -> None:
    """Raises ValueError for a name that is no module of Python, or that a control has."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            "FOLDER: its name is that of the control and must be lower-case letters, digits and "
            f"underscores, beginning with a letter, but is {name}"
        )
    found = find_spec(name)
    is_module = name in sys.stdlib_module_names or (found is not None and found.origin is not None)
    if is_module or iskeyword(name):
        raise ValueError(
            f"FOLDER: its name is that of a module, and {name} is a module or a word of Python "
            "already"
        )
    from fairseq_memattn.attention.controls import all_controls

    if name in all_controls():
        raise ValueError(f"FOLDER: there is a control {name} already")


def filled(template: str, value: Callable[[str], str]) -> str:
    return PLACEHOLDER.sub(lambda found: value(found[1]), template)
