"""What is wrong with the way in which a command ended."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

from bad_inputs import Case
from sandbox import Done
from small_inputs import SPLITS

LINES = 3  # of a message, besides argparse's usage and what was printed before
LENGTH = 1500
SENTENCE = re.compile(r"([\w./ -]+: )?error: (?=.*\w)")
HANDLED = re.compile(r"; set MEMATTN_TRACEBACK=1 to see the traceback$", re.MULTILINE)
USAGE = re.compile(r"usage: | {2}|\s*\[")
# hydra's own log of a run, in its own folder or in the current one; folders without a file;
# fairseq-preprocess's log; the checkpoints that a training wrote before it failed
KEPT = re.compile(
    r".*/|\.?hydra/.*|hydra_train\.log|outputs/.*|multirun/.*|.*preprocess\.log"
    r"|save/checkpoint\S*\.pt",
    re.DOTALL,  # a name may have a newline
)


def fault_of(case: Case, done: Done) -> str:
    """The kind of fault, or nothing."""
    if done.status < 0:
        return "did not end" if done.status == -14 else f"killed by signal {-done.status}"
    if "Traceback (most recent call last)" in done.out + done.err:
        return "traceback"
    if "HYDRA_FULL_ERROR" in done.err:
        return "HYDRA_FULL_ERROR"
    return failure(case, done) if done.status else loss(case, done)


def end_of(done: Done) -> str:
    """How a command ended that is not at fault. The handler names the type of an exception."""
    if not done.status:
        return "in success"
    return "in a sentence of the handler" if HANDLED.search(done.err) else "in a sentence"


# ------------------------------------------------------------------------- a failure


def failure(case: Case, done: Done) -> str:
    lines = [line for line in done.err.splitlines() if line.strip() and not USAGE.match(line)]
    said = [number for number, line in enumerate(lines) if SENTENCE.match(line)]
    if not said:
        return "no sentence"
    if not case.mistakes:
        return "refused without a mistake"
    if left := left_behind(case, done):
        return f"left behind: {' '.join(left[:5])}"
    given = max(map(len, case.line.argv), default=0)
    long = done.status != 2 and len(lines[said[-1]]) > LENGTH + 2 * given  # argparse's may be
    if len(lines) - said[0] > LINES or long:
        return "a long message"
    return ""


def left_behind(case: Case, done: Done) -> list[str]:
    """Files that a command that failed leaves. Complete stages of a preparation may stay."""
    log = _options(case).get("--log-file")
    left = [name for name in done.left if not (KEPT.fullmatch(name) or name == log)]
    for record in [case.folder / name for name in left if "/stages/" in f"/{name}"]:
        outputs = json.loads(record.read_text(encoding="utf-8")).get("outputs", {})
        folder = record.parents[1].relative_to(case.folder)
        complete = [str(folder / label) for label in outputs]
        if complete:
            complete.append(str(record.relative_to(case.folder)))
        left = [name for name in left if name not in complete]
    return left


# ------------------------------------------------------------------------- a success


def loss(case: Case, done: Done) -> str:
    """What is lost though the command succeeded."""
    mistakes = " ".join(case.mistakes)
    for check, unless in CHECKS.get(case.line.name, []):
        if not (unless and re.search(unless, mistakes)) and (found := check(case, done)):
            return found
    return wrong_files(case.folder, done.left)


def is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def found_numbers(pattern: str) -> Callable[[Case, Done], str]:
    """Checks that the output has a number and that all are finite."""

    def check(case: Case, done: Done) -> str:
        numbers = re.findall(pattern, done.out)
        wrong = [number for number in numbers if not is_finite(number)]
        return f"printed {wrong[0]}" if wrong else "" if numbers else f"printed no {pattern}"

    return check


def finite_losses(case: Case, done: Done) -> str:
    numbers = re.findall(r'"\w*(?:loss|ppl)": "([^"]*)"', done.out)
    wrong = [number for number in numbers if not is_finite(number)]
    return f"trained with a loss of {wrong[0]}" if wrong else ""


def trained(case: Case, done: Done) -> str:
    return "" if "done training" in done.out else "exit status 0 without training"


def saved(case: Case, done: Done) -> str:
    return "" if any(name.endswith(".pt") for name in done.left) else "no checkpoint"


def all_translated(case: Case, done: Done) -> str:
    """A hypothesis for each line of the input."""
    if case.line.name == "generate":
        wanted = SPLITS["test"]
    elif "--input" in _options(case):
        wanted = lines_in(case.folder / _options(case)["--input"])
    else:
        wanted = len(case.line.stdin.decode("utf-8", "replace").split("\n"))
        wanted -= case.line.stdin.endswith(b"\n") or not case.line.stdin
    found = len(re.findall(r"^H-\d+\t", done.out, re.MULTILINE))
    return "" if found == wanted else f"{found} hypotheses of {wanted} sentences"


def finite_scores(case: Case, done: Done) -> str:
    scores = re.findall(r"^H-\d+\t(\S+)", done.out, re.MULTILINE)
    wrong = [score for score in scores if not is_finite(score)]
    return f"a score of {wrong[0]}" if wrong else ""


def lines_in(path: Path) -> int:
    """Only a newline ends a line."""
    text = path.read_bytes()
    return text.count(b"\n") + (not text.endswith(b"\n") and bool(text))


def all_binarised(case: Case, done: Done) -> str:
    """As many sentences as the text has lines, on both sides."""
    for path in sorted(case.folder.glob("bin/*.idx")) + sorted(case.folder.glob("out/bin/*.idx")):
        split, *_, side = path.stem.split(".") if "." in path.stem else (path.stem, "x")
        lines = lines_in(case.folder / "text" / f"{split}.{side}")
        sentences = int.from_bytes(path.read_bytes()[18:26], "little")
        if sentences != lines:
            return f"{path.name} has {sentences} sentences of {lines} lines"
    return ""


def counted(pattern: str, wanted: int) -> Callable[[Case, Done], str]:
    """Checks the numbers that the command prints, where it prints them."""

    def check(case: Case, done: Done) -> str:
        numbers = [int(number) for number in re.findall(pattern, done.out)]
        wrong = [number for number in numbers if number != wanted]
        return f"{wrong[0]} of {wanted} {pattern}" if wrong else ""

    return check


def all_scored(case: Case, done: Done) -> str:
    """The sentences of the reference."""
    path = case.folder / "out.json"
    found = json.loads(path.read_text())["sentences"] if path.is_file() else None
    wanted = lines_in(case.folder / "reference.txt")
    return "" if found in (None, wanted) else f"{found} of {wanted} sentences"


def outputs_exist(case: Case, done: Done) -> str:
    """The files that the command line names."""
    named = _options(case)
    for flag in ("--output", "--json", "--scores", "--predictions", "--nbest", "--dict"):
        path = case.folder / named.get(flag, "")
        if not (path.exists() and (path.is_dir() or path.stat().st_size)):
            return f"no {path.name}"
    return ""


def _options(case: Case) -> dict[str, str]:
    """The word after each word of a command line: the values of its options."""
    words = [part for word in case.line.argv for part in _parts(word)]
    return dict(zip(words, words[1:], strict=False))


def _parts(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith("--") else [word]


def wrong_files(folder: Path, names: list[str]) -> str:
    """JSON that is none, or has numbers that are none."""
    for name in names:
        if name.endswith(".json") and (folder / name).is_file():
            try:
                json.loads((folder / name).read_text(encoding="utf-8"), parse_constant=_refuse)
            except ValueError as error:
                return f"{name}: {error}"
    return ""


def _refuse(constant: str) -> None:
    raise ValueError(f"has the number {constant}")


# The checks of a command, and mistakes in words that make each meaningless.
TRAINING = [
    (trained, r"--cfg|--info|--multirun|-m\b|hydra"),
    (finite_losses, "--lr|lr=|clip|temperature"),
    (
        saved,
        "no-save|no-last|no-epoch|save-dir|save_dir|--cfg|--info|stop-|-max-update|max-epoch|save-interval",
    ),
]
TRANSLATION = [
    (finite_scores, ""),
    (
        all_translated,
        "nbest|shard|gen-subset|--input|quiet|print|skip-invalid|splitlines|bin:|idx:",
    ),
]
OTHER_DATA = "mono|pairs|data |subset|shard|store|without|skip|max-"
WRITING = [(outputs_exist, "device|/dev/|is a file|is nowhere")]
CHECKS: dict[str, list[tuple[Callable[[Case, Done], str], str]]] = {
    **dict.fromkeys(
        ("train", "train_fairseq", "train_other_tasks", "hydra_train", "hydra_file"), TRAINING
    ),
    **dict.fromkeys(("generate", "interactive"), TRANSLATION),
    "preprocess": [(all_binarised, "pref|--dataset-impl|data |destdir|split")],
    "validate": [(found_numbers(r"\| loss (\S+)"), "log-format|quiet|subset")],
    "eval_lm": [
        (found_numbers(r"Perplexity: (\S+)"), ""),
        (counted(r"Evaluated (\d+) tokens", 56), f"{OTHER_DATA}|tokens|sample|model|overrides|eos"),
    ],
    "own_corpus": [(all_binarised, "--output|--text|without|data ")],
    "decompress": [
        (counted(r"wrote (\d+) records", 7), f"{OTHER_DATA}|ids"),
        (counted(r"(\d+) records are intact", 7), f"{OTHER_DATA}|drop"),
    ],
    **dict.fromkeys(("average", "convert", "cxmi", "perplexity", "plot", "import_model"), WRITING),
    "compress": [
        *WRITING,
        (counted(r"(\d+) documents as \1 records", 7), f"{OTHER_DATA}|documents|--"),
    ],
    "contrast": [*WRITING, (counted(r"\nsets +4 +(\d+)", 8), "sets|exchanged")],
    "align": [*WRITING, (all_scored, "--reference|reference")],
    "score": [*WRITING, (all_scored, "--reference|--separator|reference")],
    "answers": [*WRITING, (counted(r"\n\w+ +(\d+) +\d", 8), "json|gold")],
    "spans": [*WRITING, (counted(r"\nall +(\d+)", 8), "spans/bin|subset|data ")],
}
