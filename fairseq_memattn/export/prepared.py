"""The segmentation of a model's training data: files that the user gives, or those of `prepare`.

`memattn prepare` records in FOLDER/stages/ from which files it has made which; FOLDER/bin is
fairseq's data.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import read_json
from fairseq_memattn.transformers.pieces import (
    GPT2,
    SENTENCEPIECE,
    SUBWORD_NMT,
    WORDS,
    SentencePieces,
    check_codes,
)
from fairseq_memattn.transformers.vocabulary import Vocabulary

TEXTS = ("text", "tokens", "truecased", "segmented", "pieces")  # folders of text by the line
MADE = (*TEXTS, "raw", "bin")  # folders of what stages have made
OPTION = "--tokenizer"
NEEDED = "the SentencePiece model, the codes of subword-nmt, GPT-2's encoder.json and vocab.bpe"


@dataclass
class Segmented:
    """How text became the pieces of the data.

    kind: as in `MemAttnTokenizer`; pieces, truecase: the file of each side, "src" and "tgt"
    """

    kind: str = WORDS
    pieces: dict[str, Path] = field(default_factory=dict)
    truecase: dict[str, Path] = field(default_factory=dict)
    encoder: Path | None = None
    moses: bool = False
    printable_only: bool = False
    lowercase: bool = False

    def files(self) -> list[Path]:
        """All files, each once."""
        files = [*self.pieces.values(), *self.truecase.values(), self.encoder]
        return list(dict.fromkeys(path for path in files if path))

    def options(self) -> dict[str, Any]:
        """The options of the tokenizer."""
        names = ("moses", "printable_only", "lowercase")
        return {"pieces": self.kind} | {name: getattr(self, name) for name in names}


def given(paths: Sequence[Path], moses: bool) -> Segmented:
    """The segmentation of `--tokenizer`: one file, one for each side, or GPT-2's two files.

    Raises MemAttnError for files that are missing, of no known kind or of several kinds.
    """
    if [*map(str, paths)] == [WORDS]:
        return Segmented(WORDS, moses=moses)
    files = [file for path in paths for file in _files_of(path)]
    kinds = {file: kind_of(file) for file in files}
    shown = f"{OPTION} {' '.join(map(str, paths))}"
    if GPT2 in kinds.values():
        merges = [file for file in files if kinds[file] == SUBWORD_NMT]
        if len(files) != 2 or len(merges) != 1:
            raise MemAttnError(f"{shown}: GPT-2's BPE needs its encoder.json and its vocab.bpe")
        encoder = next(file for file in files if file not in merges)
        return Segmented(GPT2, dict.fromkeys(("src", "tgt"), merges[0]), encoder=encoder)
    if len(set(kinds.values())) > 1 or len(files) > 2:
        raise MemAttnError(
            f"{shown}: must be one file, or one of the source and one of the target of the same "
            "kind"
        )
    sides = dict(zip(("src", "tgt"), files * 2, strict=False))
    return Segmented(kinds[files[0]], sides, moses=moses)


def _files_of(path: Path) -> list[Path]:
    gpt2 = [path / "encoder.json", path / "vocab.bpe"]
    files = gpt2 if path.is_dir() else [path]
    for file in files:
        if not file.is_file():
            raise MemAttnError(f"{OPTION} {file}: there is no such file")
    return files


def kind_of(path: Path) -> str:
    """sentencepiece, gpt2 for an encoder.json, or subword-nmt for merges, those of GPT-2 too.

    Raises MemAttnError for any other file.
    """
    if _is_sentencepiece(path):
        return SENTENCEPIECE
    with suppress(MemAttnError):
        if isinstance(read_json(path), dict):
            return GPT2
    try:
        check_codes(path)
    except MemAttnError:
        raise MemAttnError(f"{OPTION} {path} must be one of {NEEDED}, but is none") from None
    if is_dictionary(path):
        raise MemAttnError(f"{OPTION} {path} must be one of {NEEDED}, but is a dictionary")
    return SUBWORD_NMT


def is_dictionary(path: Path) -> bool:
    """Whether a file is a dictionary of fairseq."""
    try:
        return bool(Vocabulary.load(path))
    except ValueError:
        return False


def find(data: Path, suffixes: Mapping[str, str]) -> Segmented:
    """The segmentation of a folder of data.

    suffixes: of the text of each side, {"src": "en", "tgt": "de"}; none for a single language
    Raises MemAttnError, which lists where it looked, if it finds none or several.
    """
    folder = data.resolve()
    for parent in (folder.parent, folder.parent.parent):
        if (parent / "stages").is_dir():
            return Prepared(parent).segmented(suffixes)
    files = [path for place in (folder, folder.parent) for path in sorted(place.glob("*.model"))]
    models = [*filter(_is_sentencepiece, files)]
    if len(models) == 1:
        return given(models, moses=False)
    found = f"finds {', '.join(map(str, models))}" if models else "finds none"
    raise MemAttnError(
        f"{OPTION} must be given for {data}: a look for the folder stages of `memattn prepare` in "
        f"{folder.parent} and {folder.parent.parent}, and for *.model in {folder} and "
        f"{folder.parent}, {found}; it takes {NEEDED}, or `{WORDS}` for data by the word"
    )


def _is_sentencepiece(path: Path) -> bool:
    try:
        return bool(SentencePieces(path))
    except MemAttnError:
        return False


class Prepared:
    """A folder of `memattn prepare`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made_by: dict[str, tuple[Path, dict[str, Any]]] = {}
        for path in sorted((folder / "stages").glob("*.json")):
            record = _read(path)
            self.made_by |= dict.fromkeys(record.get("outputs", {}), (path, record))

    def segmented(self, suffixes: Mapping[str, str]) -> Segmented:
        """The segmentation of the text with these suffixes, one for each side."""
        texts = [name for name in self.made_by if name.startswith(("pieces/", "text/"))]
        own = next((Path(name).suffix[1:] for name in texts if "docid" not in name), "")
        found = Segmented()
        for side, suffix in (suffixes or {"src": own}).items():
            self._follow(found, side, suffix)
        return found

    def _follow(self, found: Segmented, side: str, suffix: str) -> None:
        """Adds what has made a side's text, from the last stage to the first."""
        starts = ("pieces", "text")  # text by the word has no pieces
        labels = [name for x in starts for name in self.made_by if _is_text(name, suffix, (x,))]
        if not labels:
            raise MemAttnError(
                f"{OPTION} must be given: {self.folder / 'stages'} has no record of the text "
                f"pieces/*.{suffix}"
            )
        first = label = labels[0]
        followed: set[str] = set()
        while label in self.made_by and label not in followed:
            followed.add(label)
            path, record = self.made_by[label]
            options = record.get("options", {})
            found.lowercase |= bool(options.get("lowercase"))
            if label.startswith("tokens/"):
                found.moses = True
                found.printable_only |= bool(options.get("printable_only"))
            for name, checksum in record.get("inputs", {}).items():
                if Path(name).parts[0] not in MADE:
                    self._add(found, side, name, checksum, path)
            label = next((name for name in record["inputs"] if _is_text(name, suffix)), "")
        if first.startswith("pieces/") and side not in found.pieces:
            raise MemAttnError(
                f"{OPTION} must be given: {self.folder / 'stages'} does not say what has segmented "
                f"{first}"
            )

    def _add(self, found: Segmented, side: str, label: str, checksum: str, record: Path) -> None:
        """Adds a file that a stage has read beside text."""
        if record.name.startswith("text-") or Path(label).name.startswith("dict."):
            return
        file = self._located(label, checksum, record)
        if is_dictionary(file):
            return
        if label.startswith("truecase."):
            found.truecase[side] = file
            return
        kind = kind_of(file)
        if kind == GPT2:
            found.encoder = file
        else:
            found.pieces[side] = file
        found.kind = GPT2 if found.encoder else kind

    def _located(self, label: str, checksum: str, record: Path) -> Path:
        """A file, which lies in this folder or in that of another set of the same corpus."""
        places = [self.folder / label, *sorted(self.folder.parent.glob(f"*/{label}"))]
        for place in places:
            if place.is_file() and hashlib.sha256(place.read_bytes()).hexdigest() == checksum:
                return place
        raise MemAttnError(
            f"{OPTION} must be given: the data were segmented with {Path(label).name}, as "
            f"{record} says, which is neither in {self.folder} nor beside it"
        )


def _is_text(label: str, suffix: str, folders: Sequence[str] = TEXTS) -> bool:
    path = Path(label)
    return len(path.parts) == 2 and path.parts[0] in folders and path.suffix == f".{suffix}"


def _read(path: Path) -> dict[str, Any]:
    record: Any = None
    with suppress(MemAttnError):
        record = read_json(path)
    parts = [record.get(x, {}) for x in ("inputs", "outputs")] if isinstance(record, dict) else [0]
    for part in parts:
        labels = [Path(label) for label in part] if isinstance(part, dict) else [Path()]
        if any(label.is_absolute() or not label.parts for label in labels):
            raise MemAttnError(f"{path}: not a record of `memattn prepare`; give {OPTION}")
    return dict(record)
