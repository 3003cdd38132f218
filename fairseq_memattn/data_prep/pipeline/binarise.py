"""Conversion of segmented text to fairseq's binary data, with the document ids of each split."""

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fairseq_memattn.data_prep.pipeline import binary_data
from fairseq_memattn.data_prep.pipeline.download import digest
from fairseq_memattn.data_prep.text import aligned
from fairseq_memattn.data_prep.text.lines import progress
from fairseq_memattn.data_prep.text.subword import all_pieces
from fairseq_memattn.errors import MemAttnError, like
from fairseq_memattn.files import make_folders

VERSION = 1  # increase it when the same input gives other bytes
RECORD = "binarised.json"
OWN = re.compile(r"(train|valid|test)[0-9]*\..*(bin|idx|docids)|dict\.(.*\.)?txt")
LOG = "preprocess.log"
FURTHER = re.compile("train[0-9]+")  # parts of the training set beside train


@dataclass(frozen=True)
class Splits:
    """Prefixes of text by split, in one language or two, with document ids or without."""

    text: Mapping[str, Path]
    languages: tuple[str, ...]
    documents: bool

    def texts(self, split: str) -> list[Path]:
        return [Path(f"{self.text[split]}.{language}") for language in self.languages]

    def docids(self, split: str) -> Path:
        return docid_path(self.text[split])

    def sentences(self, split: str) -> Iterator[aligned.Sentence]:
        """The sentences, with the ids of their documents if there are any.

        In a further part of the training set that has no ids, each is a document, whose id is the
        number of its line.
        """
        found = self.docids(split) if self.documents and self.docids(split).is_file() else None
        sentences = aligned.read_sentences(self.texts(split), found)
        if not self.documents or found:
            return sentences
        return (sentence._replace(document=str(sentence.line)) for sentence in sentences)

    def inputs(self) -> dict[str, Path]:
        """Every file, by a name that does not depend on its folder."""
        files = {}
        for split in self.text:
            for language, path in zip(self.languages, self.texts(split), strict=True):
                files[f"{split}.{language}"] = path
            if self.documents and self.docids(split).is_file():
                files[f"{split}.docid"] = self.docids(split)
        return files

    def binarised(self, split: str) -> list[str]:
        """fairseq's names for a split's binary data, one a language, without their suffixes."""
        if len(self.languages) == 1:
            return [split]
        return [f"{split}.{'-'.join(self.languages)}.{language}" for language in self.languages]

    def sidecar(self, split: str) -> str:
        """The name of a split's document ids beside the binary data."""
        pair = f".{'-'.join(self.languages)}" if len(self.languages) == 2 else ""
        return f"{split}{pair}.docids"


def docid_path(prefix: Path) -> Path:
    return Path(f"{prefix}.docid")


def find_splits(text: Mapping[str, Path], languages: Sequence[str]) -> Splits:
    """The splits, with document ids where they exist.

    Raises MemAttnError for names that fairseq does not support, for missing files, and for document
    ids that only some of the splits have, further parts of the training set apart.
    """
    check_languages(languages)
    for split, prefix in text.items():
        check_name(split, prefix, text)
    with_ids = [split for split in text if docid_path(text[split]).is_file()]
    splits = Splits(text, tuple(languages), bool(with_ids))
    for split, prefix in text.items():
        for path in splits.texts(split):
            if not path.is_file():
                raise MemAttnError(f"--text {split}={prefix}: {path}: no such file")
    missing = next((x for x in text if x not in with_ids and not FURTHER.fullmatch(x)), None)
    if with_ids and missing:
        raise MemAttnError(
            f"{docid_path(text[missing])}: no such file, but {docid_path(text[with_ids[0]])} "
            "exists; document ids are given for all splits or for none, apart from train1, ..."
        )
    return splits


def check_languages(languages: Sequence[str]) -> None:
    """Raise MemAttnError unless there are one or two different languages, none called docid."""
    if len(languages) not in (1, 2) or len(set(languages)) < len(languages):
        raise MemAttnError(
            "--langs must be a source and a target, or one language, "
            f"but is {' '.join(languages) or 'empty'}"
        )
    if "docid" in languages:
        raise MemAttnError("--langs must not have docid, which is the suffix of the document ids")


def check_name(split: str, prefix: Path, text: Mapping[str, Path]) -> None:
    """Raise MemAttnError for the name of a split that fairseq does not support."""
    match = re.fullmatch("(train|valid|test)([1-9][0-9]*)?", split)
    if match is None:
        raise MemAttnError(
            f"--text {split}={prefix}: a split must be train, valid, test, train1, valid1, ..., "
            f"but is {split}{like(split, ('train', 'valid', 'test'))}"
        )
    family, number = match.groups()
    if number:
        before = f"{family}{int(number) - 1 or ''}"
        if before not in text:
            raise MemAttnError(f"--text has {split}, but no {before}")


def binarise(
    text: Mapping[str, Path],
    languages: Sequence[str],
    output: Path,
    *,
    joined_dictionary: bool = True,
    dictionary: Path | Mapping[str, Path] | None = None,
    model: Path | None = None,
    workers: int = 1,
    force: bool = False,
) -> bool:
    """Binarise PREFIX.LANG of each split, and write the ids in PREFIX.docid beside it.

    text: the prefix of each split; fairseq's splits are train, valid, test, train1, valid1, ...
    languages: source and target, or one language for language modelling
    joined_dictionary: whether both languages share a dictionary
    dictionary: the dictionary or, without `joined_dictionary`, one for each language; by default
        it is made from the training text
    model: the SentencePiece model of the text, if all of its pieces are in the dictionary that is
        made, and not only those of the training text
    force: replace data that this function has made before; it never replaces anything else

    Returns False if `output` already contains the same data, according to its `binarised.json`,
    and True otherwise. Raises MemAttnError for wrong input or options, and for an `output` with
    other contents.
    """
    splits = find_splits(text, languages)
    check_options(splits, joined_dictionary, dictionary)
    pieces = all_pieces(model) if model else []
    inputs = splits.inputs() | named(dictionary) | ({"model": model} if model else {})
    record = {
        "version": VERSION,
        "languages": list(languages),
        "joined_dictionary": joined_dictionary and len(languages) == 2,
        "sha256": {name: digest(path) for name, path in inputs.items()},
    }
    remove_leftovers(Path(os.path.realpath(output)))
    if is_done(output, record, force):
        return False
    with replaced_when_done(output) as folder:
        for split in text:
            write_checked(splits, split, folder)
        symbols = symbols_by_language(splits, joined_dictionary, dictionary, pieces)
        write_data(splits, folder, symbols, workers)
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        contents = json.dumps({**record, "bytes": sizes}, indent=2, sort_keys=True) + "\n"
        (folder / RECORD).write_text(contents, encoding="utf-8")
    return True


def named(dictionary: Path | Mapping[str, Path] | None) -> dict[str, Path]:
    """The given dictionaries, by their names in the record."""
    if isinstance(dictionary, Mapping):
        return {f"dictionary.{language}": path for language, path in dictionary.items()}
    return {} if dictionary is None else {"dictionary": dictionary}


def check_options(
    splits: Splits, joined_dictionary: bool, dictionary: Path | Mapping[str, Path] | None
) -> None:
    if dictionary is None:
        if "train" not in splits.text:
            raise MemAttnError(
                "--text has no train, from which a dictionary is made; add it or --dictionary"
            )
        return
    languages = tuple(splits.languages)
    if isinstance(dictionary, Mapping):
        if joined_dictionary or tuple(dictionary) != languages:
            raise MemAttnError(
                f"dictionaries are given for {', '.join(dictionary)}, but needed for "
                f"{'both languages together' if joined_dictionary else ', '.join(languages)}"
            )
    elif len(languages) == 2 and not joined_dictionary:
        raise MemAttnError(
            f"--dictionary {dictionary} is for both languages; join the dictionaries"
        )
    for path in named(dictionary).values():
        binary_data.check_dictionary(path)


def is_own(path: Path) -> bool:
    """Whether a file has a name that this command gives."""
    return path.name in (RECORD, LOG) or OWN.fullmatch(path.name) is not None


def forget_other_parts(folder: Path, kept: Collection[str]) -> None:
    """Remove FOLDER/PART of an earlier run with other options, for parts that are not in `kept`.

    fairseq would read it beside the new ones. A folder with files that `binarise` has not made
    stays.
    """
    for record in sorted(folder.glob(f"*/{RECORD}")):
        part = record.parent
        if part.name not in kept and all(is_own(path) for path in part.iterdir()):
            shutil.rmtree(part)
            print(f"bin: {part}, of an earlier run, is removed")


def is_done(output: Path, record: Mapping[str, object], force: bool) -> bool:
    """Whether `output` was made from `record`. Raises MemAttnError for other contents."""
    if output.exists() and not output.is_dir():
        raise MemAttnError(f"--output {output} is a file; it must be a folder")
    if not output.exists() or not any(output.iterdir()):
        return False
    try:
        found = json.loads((output / RECORD).read_text(encoding="utf-8"))
        sizes = found.pop("bytes")
        present = {
            path.name: path.stat().st_size for path in output.iterdir() if path.name in sizes
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MemAttnError(
            f"--output {output} is not empty and was not made by this command (no {RECORD}); "
            "choose another folder"
        ) from None
    if found == record and present == sizes:
        return True
    foreign = [path for path in sorted(output.iterdir()) if not (path.is_file() and is_own(path))]
    if foreign:
        raise MemAttnError(
            f"--output {output} has {foreign[0].name}, which this command has not made and would "
            "remove; move it, or choose another folder"
        )
    if force:
        return False
    reason = "was changed since" if found == record else "was made from other data or options"
    raise MemAttnError(
        f"--output {output} {reason} (see {RECORD}); choose another folder or add --force"
    )


@contextmanager
def replaced_when_done(output: Path) -> Iterator[Path]:
    """A new folder that replaces `output` if the body ends without an exception."""
    output = Path(os.path.realpath(output))
    part = output.with_name(f".{output.name}.binarising-{os.getpid()}")
    old = output.with_name(f".{output.name}.replaced")
    made: list[Path] = []
    try:
        made = make_folders(part)
        yield part
        if output.exists():
            output.rename(old)
        part.rename(output)
        made.clear()
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for folder in reversed(made[:-1]):
            folder.rmdir()


def remove_leftovers(output: Path) -> None:
    """Remove the folders of runs that were killed, and bring back what one was about to replace."""
    old = output.with_name(f".{output.name}.replaced")
    if old.is_dir() and not output.exists():
        old.rename(output)
    if output.parent.is_dir():
        for path in output.parent.iterdir():
            if path.name.startswith((f".{output.name}.binarising-", f".{output.name}.replaced")):
                shutil.rmtree(path, ignore_errors=True)


def write_checked(splits: Splits, split: str, folder: Path) -> None:
    """Check a split and write its document ids.

    Raises MemAttnError at the first wrong line. A pair must have text on both sides, because
    fairseq would train on empty sentences. For one language fairseq joins the lines, and lines may
    be empty.
    """
    paths = splits.texts(split)
    sentence = None
    docids = splits.docids(split) if splits.documents else None
    sentences = splits.sentences(split)
    with ExitStack() as stack:
        if docids:
            sentences = aligned.contiguous(sentences, docids)
            sidecar = folder / splits.sidecar(split)
            file = stack.enter_context(open(sidecar, "w", encoding="utf-8", newline="\n"))
        if len(paths) == 2:
            sentences = aligned.without_empty(sentences, paths)
        for sentence in progress(sentences, f"checking {split}", paths[0]):
            if docids:
                file.write(sentence.document + "\n")
    if sentence is None:
        raise MemAttnError(f"{paths[0]}: no lines")


def write_data(
    splits: Splits, folder: Path, symbols: Mapping[str, binary_data.Symbols], workers: int
) -> None:
    """Write the dictionaries and the data, and in the log what each file of the data contains."""
    for language in splits.languages:
        name = f"dict.{language}.txt" if len(splits.languages) == 2 else "dict.txt"
        binary_data.write_symbols(symbols[language], folder / name)
    with open(folder / LOG, "w", encoding="utf-8", newline="\n") as log:
        for split in splits.text:
            names = splits.binarised(split)
            for language, text, name in zip(
                splits.languages, splits.texts(split), names, strict=True
            ):
                content = binary_data.write_binary(text, symbols[language], folder / name, workers)
                print(f"{text}: {content}", file=sys.stderr)
                log.write(f"{name}: {content}\n")


def symbols_by_language(
    splits: Splits,
    joined_dictionary: bool,
    dictionary: Path | Mapping[str, Path] | None,
    pieces: Sequence[str] = (),
) -> dict[str, binary_data.Symbols]:
    """The symbols of each language: of given dictionaries, or of the training text and `pieces`."""
    if isinstance(dictionary, Mapping):
        return {language: binary_data.read_symbols(path) for language, path in dictionary.items()}
    if dictionary is not None:
        return dict.fromkeys(splits.languages, binary_data.read_symbols(dictionary))
    texts = [splits.texts(split) for split in splits.text if split.startswith("train")]
    if joined_dictionary:
        return dict.fromkeys(splits.languages, binary_data.count_symbols([*chain(*texts)], pieces))
    pairs = zip(splits.languages, zip(*texts, strict=True), strict=True)
    return {
        language: binary_data.count_symbols(of_language, pieces) for language, of_language in pairs
    }
