"""Write a generated English-Russian document corpus and its contrastive sets."""

import argparse
import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path

from fairseq_memattn.data_prep.generated.discourse.discourse_corpus import SPLITS, Corpus, Options
from fairseq_memattn.data_prep.generated.discourse.generated_documents import DISTANCES
from fairseq_memattn.data_prep.generated.discourse.phenomena import PHENOMENA
from fairseq_memattn.data_prep.pipeline.outputs import LOCK, locks_output
from fairseq_memattn.data_prep.pipeline.stages import remove_leftovers
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing

VERSION = 2  # increase it when the same options give other text
RECORD = "corpus.json"
DESCRIPTION = """\
Generate an English-Russian document corpus in which the translation of a sentence depends on a
sentence one to three lines earlier (--distances): the gender of a pronoun, the form of address, the
verb or noun that an ellipsis stands for, or the earlier translation of a name or noun.

  %(prog)s --output corpus --train-docs 2000 --valid-docs 100 --test-docs 100 --seed 1

OUT/{train,valid,test}.{en,ru,docid}   one sentence a line, and the document id of each line
OUT/contrast/{pronoun,deixis,ellipsis,cohesion}.json
                                       correct and incorrect translations of the last of four
                                       sentences (one more than the largest of --distances), in the
                                       format of Voita et al. (2019)
OUT/corpus.json                        options, counts and checksums

The same options give the same bytes on every machine. No document occurs in two splits, and no
source of a contrastive set occurs in a document.
"""


def corpus_files(options: Options) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """The text of every file by its name, and the counts to record."""
    corpus = Corpus(options)
    files: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for phenomenon in PHENOMENA:
        groups = corpus.contrast(phenomenon)
        files[f"contrast/{phenomenon}.json"] = (
            "[\n" + ",\n".join(json.dumps(group, ensure_ascii=False) for group in groups) + "\n]\n"
        )
        counts[phenomenon] = {"groups": len(groups)}
    for split in SPLITS:
        documents = corpus.split(split)
        rows = [
            (pair.en, pair.ru, str(number))
            for number, pairs in enumerate(documents, start=1)
            for pair in pairs
        ]
        for suffix, column in zip(("en", "ru", "docid"), zip(*rows, strict=True), strict=True):
            files[f"{split}.{suffix}"] = "\n".join(column) + "\n"
        counts[split] = {"documents": len(documents), "sentences": len(rows)}
    return files, counts


def checksum(text: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(text).hexdigest()


def is_done(out: Path, options: Options, force: bool) -> bool:
    """Whether `out` contains exactly this corpus.

    Raises MemAttnError for other contents, but not for those that a killed command has left.
    """
    record = out / RECORD
    if not out.exists() or not any(out.iterdir()):
        return False
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        # Corpora of earlier releases have no other distances, and do not record them.
        made = {"distances": list(DISTANCES)} | found["options"]
        same = found["version"] == VERSION and made == asdict(options)
        folder = out.resolve()
        if same and all(
            (out / name).resolve().is_relative_to(folder)
            and checksum((out / name).read_bytes()) == digest
            for name, digest in found["sha256"].items()
        ):
            return True
        reason = "was changed since" if same else "contains a corpus made with other options"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        reason = f"is not empty and has no complete {RECORD}"
    if force or (not record.exists() and is_begun(out, options)):
        return False
    raise MemAttnError(f"--output {out} {reason}; choose another folder or add --force")


def is_begun(out: Path, options: Options) -> bool:
    """Whether each file in `out` belongs to this corpus and is complete.

    Removes temporary files of killed commands.
    """
    files, _ = corpus_files(options)
    remove_leftovers([out / name for name in (*files, RECORD)])
    there = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
    return all(
        name in files and path.read_bytes() == files[name].encode("utf-8")
        for name, path in there.items()
        if name != LOCK
    )


def write_corpus(out: Path, options: Options) -> dict[str, dict[str, int]]:
    """Write all files or none; returns the counts."""
    files, counts = corpus_files(options)
    record = {
        "version": VERSION,
        "options": asdict(options),
        "counts": counts,
        "sha256": {name: checksum(text.encode("utf-8")) for name, text in files.items()},
    }
    files[RECORD] = json.dumps(record, indent=2) + "\n"
    with write_all_or_nothing([out / name for name in files]) as handles:
        for handle, text in zip(handles, files.values(), strict=True):
            handle.write(text)
    return counts


def check(options: Options) -> None:
    """Raise MemAttnError for options outside of their range."""
    numbers = asdict(options)
    distances = numbers.pop("distances")
    for name, value in numbers.items():
        if value < 1 and name != "seed":
            raise MemAttnError(f"--{name.replace('_', '-')} must be at least 1, but is {value}")
    if min(distances) < 1 or len(set(distances)) < len(distances):
        given = " ".join(map(str, distances))
        raise MemAttnError(f"--distances must be different numbers from 1, but are {given}")
    if options.min_sentences <= options.context:
        raise MemAttnError(
            f"--min-sentences must be at least {options.context + 1}, one more than the largest of "
            f"--distances, but is {options.min_sentences}"
        )
    if options.max_sentences < options.min_sentences:
        raise MemAttnError(
            f"--max-sentences must be at least --min-sentences {options.min_sentences}, "
            f"but is {options.max_sentences}"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("--output", "--out"),
        required=True,
        type=Path,
        metavar="FOLDER",
        help="folder for the corpus; --out is an earlier name",
    )
    for option, default, what in (
        ("--train-docs", 2000, "training documents"),
        ("--valid-docs", 100, "validation documents"),
        ("--test-docs", 100, "test documents"),
        (
            "--contrast-groups",
            200,
            "contrastive groups of each phenomenon, rounded up to balanced sets (a multiple of "
            "twice the number of distances)",
        ),
        (
            "--min-sentences",
            6,
            "sentences in the shortest document, more than the largest distance",
        ),
        ("--max-sentences", 12, "sentences in the longest document"),
        ("--seed", 1, "seed of the corpus"),
        (
            "--name-weight",
            1,
            "weight of repeated first names in training stories; that of an elided verb is 1, of "
            "an elided noun 2, of a pronoun 3",
        ),
        ("--noun-weight", 3, "weight of repeated nouns with two translations"),
    ):
        parser.add_argument(
            option, type=int, default=default, metavar="N", help=f"{what} (default: {default})"
        )
    parser.add_argument(
        "--distances",
        type=int,
        nargs="+",
        default=list(DISTANCES),
        metavar="N",
        help="numbers of sentences from a cue to the sentence that needs it. They are equally "
        "frequent in the contrastive sets; in documents, short ones are more frequent "
        "(default: 1 2 3)",
    )
    parser.add_argument("--force", action="store_true", help="replace the contents of --output")


@locks_output
def run(args: argparse.Namespace) -> None:
    """Run the command line."""
    options = Options(**{field.name: getattr(args, field.name) for field in fields(Options)})
    check(options)
    if is_done(args.output, options, args.force):
        print(f"{args.output} already contains this corpus")
        return
    for name, count in write_corpus(args.output, options).items():
        print(f"{name:9}" + ", ".join(f"{value} {unit}" for unit, value in count.items()))
