"""The splits of a data set as fairseq names them, and the files that belong to each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_memattn.errors import MemAttnError, like


@dataclass(frozen=True)
class Splits:
    """Prefixes of text by split, in one language or two, with document ids or without."""

    text: Mapping[str, Path]
    languages: tuple[str, ...]
    documents: bool

    def texts(self, split: str) -> list[Path]:
        """The text of a split, one file a language."""
        return [Path(f"{self.text[split]}.{language}") for language in self.languages]

    def docids(self, split: str) -> Path:
        """The document ids of a split."""
        return docid_path(self.text[split])

    def inputs(self) -> dict[str, Path]:
        """Every file, by a name that does not depend on its folder."""
        files = {}
        for split in self.text:
            for language, path in zip(self.languages, self.texts(split), strict=True):
                files[f"{split}.{language}"] = path
            if self.documents:
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
    """The document ids that belong to a prefix."""
    return Path(f"{prefix}.docid")


def find_splits(text: Mapping[str, Path], languages: Sequence[str]) -> Splits:
    """The splits, with document ids where they exist.

    Raises MemAttnError for names that fairseq does not support, for missing files, and for document
    ids that only some of the splits have.
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
    if with_ids and len(with_ids) < len(text):
        missing = next(split for split in text if split not in with_ids)
        raise MemAttnError(
            f"{docid_path(text[missing])}: no such file, but {docid_path(text[with_ids[0]])} "
            "exists; document ids are given for all splits or for none"
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
    match = re.fullmatch("(train)|(valid|test)([1-9][0-9]*)?", split)
    if match is None:
        raise MemAttnError(
            f"--text {split}={prefix}: a split must be train, valid, test, valid1, test1, ..., "
            f"but is {split}{like(split, ('train', 'valid', 'test'))}"
        )
    _, family, number = match.groups()
    if number:
        before = f"{family}{int(number) - 1 or ''}"
        if before not in text:
            raise MemAttnError(f"--text has {split}, but no {before}")
