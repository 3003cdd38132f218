"""What the scripts of single corpora share: their options, and the way from text to binary data."""

import argparse
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from data_prep import bpe, moses, subword
from data_prep.archives import extract, sources
from data_prep.binarise import binarise
from data_prep.files import DataError, write_all_or_nothing
from data_prep.lines import LineFunction, rewrite
from data_prep.stages import Counts, Stages
from data_prep.windows import positive

SPLITS = ("train", "valid", "test")


class Pipeline:
    """The stages of one corpus in one folder: FOLDER/KIND/SPLIT.LANGUAGE.

    KIND is text (as released), tokens, truecased, pieces (segmented), and bin (fairseq's data). A
    stage that is done is not done again, and none leaves half of its output behind.
    """

    def __init__(
        self, folder: Path, languages: Sequence[str], *, workers: int = 1, force: bool = False
    ) -> None:
        self.folder = folder
        self.languages = tuple(languages)
        self.workers = workers
        self.force = force
        self.stages = Stages(folder, force)

    def path(self, kind: str, split: str, suffix: str) -> Path:
        """Where a stage's text, or its document ids (suffix docid), of a split are."""
        return self.folder / kind / f"{split}.{suffix}"

    def paths(self, kind: str, split: str) -> list[Path]:
        """A split in every language."""
        return [self.path(kind, split, language) for language in self.languages]

    def unpack(self, archive: Path, wanted: Mapping[str, str]) -> dict[str, Path]:
        """Files of an archive into raw/; returns where each of them is.

        wanted: the end of each file's path in the archive, and its name in raw/
        Raises DataError as `extract` does, and where the pipeline's folder lies in the archive's.
        """
        if archive.is_dir() and self.folder.resolve().is_relative_to(archive.resolve()):
            raise DataError(f"--output {self.folder} lies in --archive {archive}; take another")
        targets = {end: self.folder / "raw" / name for end, name in wanted.items()}

        def work() -> Counts:
            extract(archive, targets)
            return {"files": len(targets)}

        inputs = sources(archive, targets)
        self.stages.run(f"raw-{archive.name}", inputs, [*targets.values()], work)
        return targets

    def write_text(
        self,
        split: str,
        inputs: Sequence[Path],
        rows: Callable[[Counter[str]], Iterable[Sequence[str]]],
        documents: bool,
        **options: object,
    ) -> Counts:
        """Write text/SPLIT.*: `rows` gives one text a language and, with `documents`, an id last.

        Of pairs those with an empty side are dropped and counted.
        rows: is handed the counts of the stage, to which it adds what it leaves out itself
        """
        outputs = self.paths("text", split)
        if documents:
            outputs.append(self.path("text", split, "docid"))
        unit = "pairs" if len(self.languages) == 2 else "lines"

        def work() -> Counts:
            counts = Counter({unit: 0, "documents": 0} if documents else {unit: 0})
            with write_all_or_nothing(outputs) as files:
                last = None
                lines = tqdm(rows(counts), desc=f"text/{split}", unit=" lines", disable=None)
                for row in without_empty(lines, len(self.languages), counts):
                    _write_row(files, row)
                    counts[unit] += 1
                    if documents and row[-1] != last:
                        counts["documents"] += 1
                        last = row[-1]
                if not counts[unit]:
                    raise DataError(f"{inputs[0]}: no text for {split}")
            return counts

        return self.stages.run(f"text-{split}", inputs, outputs, work, **options)

    def tokenise(self, splits: Sequence[str] = SPLITS, printable_only: bool = False) -> None:
        """text/ to tokens/ with Moses' rules."""
        for split in splits:
            for language in self.languages:
                make = partial(moses.tokeniser, language, printable_only)
                options = {"sacremoses": moses.version(), "printable_only": printable_only}
                self._rewrite("text", "tokens", split, language, make, **options)

    def truecase(self, splits: Sequence[str] = SPLITS) -> None:
        """tokens/ to truecased/, with the cases counted in tokens/train."""
        for language in self.languages:
            options = {"sacremoses": moses.version()}
            source = self.path("tokens", "train", language)
            model = self.folder / f"truecase.{language}"
            learn = partial(moses.learn_truecaser, source, model)
            self.stages.run(model.name, [source], [model], learn, **options)
            for split in splits:
                make = partial(moses.truecaser, model)
                self._rewrite("tokens", "truecased", split, language, make, model, **options)

    def learn_bpe(
        self, inputs: Sequence[Path], name: str, symbols: int, total: bool = False
    ) -> Path:
        """BPE codes from some files together, written under a name; see `bpe.learn`."""
        codes = self.folder / name
        options = {"symbols": symbols, "total": total, "subword_nmt": bpe.version()}
        learn = partial(bpe.learn, inputs, codes, symbols, total)
        self.stages.run(name, inputs, [codes], learn, **options)
        return codes

    def apply_bpe(
        self,
        kind: str,
        codes: Mapping[str, Path],
        splits: Sequence[str] = SPLITS,
        to: str = "pieces",
    ) -> None:
        """KIND/ to TO/, with the codes of each language."""
        options = {"subword_nmt": bpe.version()}
        for split in splits:
            for language in self.languages:
                make = partial(bpe.segmenter, codes[language])
                self._rewrite(kind, to, split, language, make, codes[language], **options)

    def learn_sentencepiece(
        self,
        inputs: Sequence[Path],
        name: str,
        vocab_size: int,
        separator: str,
        seed: int,
        option: str = "--vocab-size",
        model_type: str = subword.MODEL_TYPES[0],
    ) -> Path:
        """A SentencePiece model of some files together, NAME.model; see `subword.train`."""
        model = self.folder / name
        outputs = [self.folder / f"{name}.{suffix}" for suffix in ("model", "vocab")]
        learn = partial(
            subword.train, inputs, model, vocab_size, separator, seed, option, model_type
        )
        self.stages.run(
            name,
            inputs,
            outputs,
            learn,
            vocab_size=vocab_size,
            separator=separator,
            seed=seed,
            model_type=model_type,
        )
        return outputs[0]

    def copy_docids(self, splits: Sequence[str] = SPLITS) -> None:
        """The document ids to where the pieces are, as `binarise` expects them."""
        for split in splits:
            source, target = (self.path(kind, split, "docid") for kind in ("text", "pieces"))
            copy = partial(_copy, source, target)
            self.stages.run(f"pieces-{split}-docid", [source], [target], copy)

    def drop_docids(self, splits: Sequence[str] = SPLITS) -> None:
        """Forget the document ids of an earlier text that had them."""
        for split in splits:
            self.stages.forget(f"pieces-{split}-docid")

    def binarise(
        self,
        kind: str = "pieces",
        splits: Sequence[str] = SPLITS,
        dictionary: Path | Mapping[str, Path] | None = None,
        joined_dictionary: bool = True,
    ) -> None:
        """KIND/ to bin/, with one dictionary for all languages, or one each; see `binarise`."""
        text = {split: self.folder / kind / split for split in splits}
        target = self.folder / "bin"
        made = binarise(
            text,
            self.languages,
            target,
            joined_dictionary=joined_dictionary,
            dictionary=dictionary,
            workers=self.workers,
            force=self.force,
        )
        print(f"bin: {target} {'is ready' if made else 'was ready'}")

    def _rewrite(
        self,
        kind: str,
        to: str,
        split: str,
        language: str,
        make: Callable[[], LineFunction],
        *models: Path,
        **options: object,
    ) -> None:
        """KIND/ to TO/, line by line, for one split and language."""
        source, target = (self.path(folder, split, language) for folder in (kind, to))
        self.stages.run(
            f"{to}-{split}-{language}",
            [source, *models],
            [target],
            partial(rewrite, source, target, make, self.workers),
            **options,
        )


def _write_row(files: Sequence[TextIO], row: Sequence[str]) -> None:
    for file, text in zip(files, row, strict=True):
        file.write(text + "\n")


def _copy(source: Path, target: Path) -> None:
    with write_all_or_nothing([target]) as [file], open(source, "rb") as content:
        shutil.copyfileobj(content, file.buffer)


def without_empty(
    rows: Iterable[Sequence[str]], languages: int, counts: Counter[str]
) -> Iterator[Sequence[str]]:
    """The rows but for pairs with an empty side, which are counted."""
    for row in rows:
        if languages == 1 or all(row[:languages]):
            yield row
        else:
            counts["pairs with an empty side dropped"] += 1


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every corpus has."""
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FOLDER", help="where everything is written"
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="processes (default: 1); the result is the same",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace what --output holds of other input or options",
    )


def add_archive_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """The options of corpora that come from official archives."""
    parser.add_argument(
        "--archive",
        type=Path,
        default=[] if several else None,
        nargs="+" if several else None,
        metavar="FILE",
        help=(
            "archives that you have, under their official names; the others are downloaded"
            if several
            else "the archive, or a folder with what it holds, instead of downloading it"
        ),
    )
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="accept archives and corpora of another size or checksum than the official ones",
    )
