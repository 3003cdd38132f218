"""Draws bad inputs: a right command line with one or two mistakes, and now and then none."""

import os
import random
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import file_damage
from command_lines import CommandLine, draw_line
from parser_flags import Flag, flags_of
from small_inputs import FILES, FOLDERS, MODELS, Inputs
from wrong_values import (
    NUMBERS,
    OVERRIDES,
    PATHS,
    STANDARD_INPUTS,
    TEXTS,
    WHOLE_NUMBERS,
    YAML_LINES,
    YAML_VALUES,
    place_files,
    values_instead_of,
)


@dataclass
class Case:
    """folder: holds the inputs; mistakes: what was made wrong, in words."""

    line: CommandLine
    folder: Path
    mistakes: list[str] = field(default_factory=list)

    def shell(self) -> str:
        """The command that repeats it. What is not UTF-8 in it, as in bash's $'\\xff'."""
        words = [self.line.command, *self.line.argv]
        stdin = " < ../stdin" if self.line.stdin else ""
        return f"cd {self.folder} && {' '.join(map(_quoted, words))}{stdin}"


def _quoted(word: str) -> str:
    written = word.encode("utf-8", "surrogateescape")
    shown = written.decode("utf-8", "backslashreplace")
    return shlex.quote(word) if shown == word else f"$'{shown}'"


def draw_case(seed: int, number: int, inputs: Inputs, folder: Path) -> Case:
    """Case `number` of a seed, the same in every run. folder: one to make."""
    draw = random.Random(f"{seed}/{number}")
    case = Case(draw_line(draw), folder)
    for path, name in case.line.inputs.items():
        inputs.copy(name, folder / path)
    folder.mkdir(exist_ok=True)
    place_files(folder)
    for _ in range(*draw.choices((0, 1, 2), (1, 12, 3))):
        kinds = mistakes_for(case.line)
        while not (said := draw.choices(list(kinds), list(kinds.values()))[0](draw, case, inputs)):
            pass
        case.mistakes.append(said)
    return case


Mistake = Callable[[random.Random, Case, Inputs], str]


def mistakes_for(line: CommandLine) -> dict[Mistake, int]:
    """What can be made wrong, and how often it is."""
    kinds: dict[Mistake, int] = {a_word_left_out: 1, a_word_too_many: 1, a_damaged_file: 6}
    if line.command == "fairseq-hydra-train":
        kinds |= {a_wrong_override: 5, another_override: 3}
        kinds |= {a_wrong_configuration: 4} if "conf" in line.inputs else {}
    else:
        kinds |= {a_wrong_value: 5, another_flag: 4, an_output_that_exists: 1}
    if line.stdin:
        kinds[another_standard_input] = 5
    if any(path.endswith(".pt") for path in line.inputs):
        kinds[another_model] = 2
    if line.inputs:
        kinds |= {other_data: 1, another_file: 1}
    return kinds


# ------------------------------------------------------------------- the command line


def is_flag(word: str) -> bool:
    return word.startswith("--") or word in ("-s", "-t")


def first_word(line: CommandLine) -> int:
    """Of those that can be changed: not the subcommand."""
    return 1 if line.command == "memattn" else 0


def a_wrong_value(draw: random.Random, case: Case, inputs: Inputs) -> str:
    argv = case.line.argv
    places = [n for n in range(first_word(case.line), len(argv)) if not is_flag(argv[n])]
    places = [n for n in places if argv[n - 1] not in LEFT_OUT]
    if not places:
        return ""
    at = draw.choice(places)
    right = argv[at]
    argv[at] = draw.choice(values_instead_of(right, case.folder))
    before = argv[at - 1] if at and is_flag(argv[at - 1]) else right
    return f"{before} {argv[at]!r:.60}"


# They start processes, need programs or servers, or end the command.
LEFT_OUT = ("--help", "--wandb", "--aim", "--azureml", "--tpu", "--nprocs", "--tensorboard")
LEFT_OUT += ("--distributed-port", "--distributed-world", "--device-id", "--profile", "--archive")
LEFT_OUT += ("--use-plasma", "--plasma", "--comet", "--metricx", "--workers", "--num-workers")
OURS = ("--abc", "--gmat", "--t5", "--source-context", "--target-context", "--context", "--window")


def another_flag(draw: random.Random, case: Case, inputs: Inputs) -> str:
    flags = [flag for flag in flags_of(case.line) if not flag.name.startswith(LEFT_OUT)]
    ours = [flag for flag in flags if flag.name.startswith(OURS)]
    if ours and draw.random() < 0.4:
        flags = ours
    flag = draw.choice(flags)
    words = [flag.name]
    if flag.takes_value and draw.random() < 0.95:
        words.append(value_of(draw, flag))
        if draw.random() < 0.5:
            words = ["=".join(words)]
    case.line.argv += words
    return " ".join(words)[:80]


def value_of(draw: random.Random, flag: Flag) -> str:
    if flag.choices and draw.random() < 0.6:
        return draw.choice([*flag.choices, "nonsense", ""])
    known = {"int": WHOLE_NUMBERS, "float": NUMBERS}
    return draw.choice(known.get(flag.kind, WHOLE_NUMBERS + TEXTS + PATHS))


def a_word_left_out(draw: random.Random, case: Case, inputs: Inputs) -> str:
    """A word, or a flag with its value."""
    argv = case.line.argv
    at = draw.randrange(len(argv)) if argv else 0
    words = 2 if is_flag(argv[at]) and draw.random() < 0.6 else 1
    left_out = argv[at : at + words]
    del argv[at : at + words]
    return f"without {' '.join(left_out)}"


SURPLUS = ("--nonsense", "-x", "surplus", "--no-such-flag=3", "--", "---", "@file", "--seed", "")
SURPLUS += ("--cpu=1", "\u00e9", "\udcff")


def a_word_too_many(draw: random.Random, case: Case, inputs: Inputs) -> str:
    word = draw.choice(SURPLUS)
    argv = case.line.argv
    argv.insert(draw.randrange(first_word(case.line), len(argv) + 1), word)
    return f"with {word!r}"


def a_wrong_override(draw: random.Random, case: Case, inputs: Inputs) -> str:
    argv = case.line.argv
    places = [n for n, word in enumerate(argv) if "=" in word and "user_dir" not in word]
    if not places:
        return ""
    at = draw.choice(places)
    key, _, value = argv[at].partition("=")
    kinds = [f"{key}={draw.choice(NUMBERS + TEXTS + PATHS)}"] * 3
    kinds += [f"{key[:-1]}={value}", draw.choice(["~", "+", "++", "@", " ", "."]) + argv[at]]
    argv[at] = draw.choice(kinds)
    return argv[at][:80]


def another_override(draw: random.Random, case: Case, inputs: Inputs) -> str:
    word = draw.choice(OVERRIDES)
    case.line.argv.insert(0, word)
    return word


OUTPUTS = ("--output", "--destdir", "--save-dir", "--json", "--scores", "--tokens", "--dict")
OUTPUTS += ("--predictions", "--nbest", "--picture", "--plot")


def an_output_that_exists(draw: random.Random, case: Case, inputs: Inputs) -> str:
    words = zip(case.line.argv, case.line.argv[1:], strict=False)
    paths = [case.folder / value for flag, value in words if flag in OUTPUTS and value.isascii()]
    paths = [p for p in paths if p.parent == case.folder and not os.path.lexists(p)]
    if not paths:
        return ""
    path = draw.choice(paths)
    kind = draw.choice(["a file", "a folder", "a filled folder", "/dev/full", "nowhere/at/all"])
    if kind == "a file":
        path.write_text("something else\n")
    elif "folder" in kind:
        path.mkdir()
        if "filled" in kind:
            (path / "something").write_text("else\n")
    else:
        path.symlink_to(kind)
    return f"{path.name} is {kind}"


# ------------------------------------------------------------------------------ files


def files_of(case: Case) -> list[Path]:
    found = [case.folder / path for path in case.line.inputs]
    inside = [path for folder in found if folder.is_dir() for path in folder.rglob("*")]
    return sorted(path for path in (*found, *inside) if path.is_file())


def a_file(draw: random.Random, case: Case) -> Path | None:
    """Of each kind as often, however many there are."""
    kinds: dict[str, list[Path]] = {}
    for path in files_of(case):
        kinds.setdefault(path.suffix, []).append(path)
    return draw.choice(kinds[draw.choice(sorted(kinds))]) if kinds else None


def a_damaged_file(draw: random.Random, case: Case, inputs: Inputs) -> str:
    path = a_file(draw, case)
    return f"{path.relative_to(case.folder)}: {file_damage.damage(draw, path)}" if path else ""


def another_file(draw: random.Random, case: Case, inputs: Inputs) -> str:
    path, name = a_file(draw, case), draw.choice(FILES)
    if not path:
        return ""
    inputs.copy(name, path)
    return f"{path.relative_to(case.folder)}: {name}"


def another_model(draw: random.Random, case: Case, inputs: Inputs) -> str:
    paths = [path for path in case.line.inputs if path.endswith(".pt")]
    path, model = draw.choice(paths), draw.choice(MODELS)
    inputs.copy(f"models/{model}.pt", case.folder / path)
    return f"{path}: {model}"


def other_data(draw: random.Random, case: Case, inputs: Inputs) -> str:
    """Another folder in the place of one."""
    argv = case.line.argv
    places = [n for n, word in enumerate(argv) if word.split("/")[0] in FOLDERS]
    if not places:
        return ""
    other = draw.choice(FOLDERS)
    inputs.copy(other, case.folder / other)
    argv[draw.choice(places)] = f"{other}/bin" if other in ("spans", "qa") else other
    return f"data {other}"


def another_standard_input(draw: random.Random, case: Case, inputs: Inputs) -> str:
    name = draw.choice(list(STANDARD_INPUTS))
    case.line.stdin = STANDARD_INPUTS[name]
    return f"standard input: {name}"


def a_wrong_configuration(draw: random.Random, case: Case, inputs: Inputs) -> str:
    path = case.folder / "conf" / "own.yaml"
    if not path.is_file():
        return ""
    lines = path.read_bytes().decode("latin-1").splitlines()
    at = draw.randrange(len(lines) or 1)
    key, _, value = "".join(lines[at : at + 1]).partition(":")
    new = draw.choice(
        [f"{key}: {draw.choice(YAML_VALUES)}"] * 4
        + [f"{key}x:{value}", f"\t{key}:{value}", f" {key}:{value}", "", draw.choice(YAML_LINES)]
    )
    lines[at : at + 1] = [new]
    path.write_bytes("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))
    return f"line {at + 1} of own.yaml: {new:.60}"
