"""What the corpora share: common options, and the stages from text to binary data."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_memattn.data_prep.pipeline.archives import extract, sources
from fairseq_memattn.data_prep.pipeline.binarise import binarise, forget_other_parts
from fairseq_memattn.data_prep.pipeline.stages import Counts, Stages
from fairseq_memattn.data_prep.text import bpe, moses, subword
from fairseq_memattn.data_prep.text.aligned import aligned_lines
from fairseq_memattn.data_prep.text.lines import (
    LineFunction,
    from_bpe,
    progress,
    rewrite,
    write_row,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing

SPLITS = ("train", "valid", "test")


class Pipeline:
    """The stages of one corpus in one folder: FOLDER/KIND/SPLIT.LANGUAGE.

    KIND is text (as released), tokens, truecased, pieces (segmented) or bin (fairseq's data). A
    stage that is complete does not run again, and no stage leaves partial output.
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
        """The path of a split's text in a language, or of its document ids (suffix docid)."""
        return self.folder / kind / f"{split}.{suffix}"

    def paths(self, kind: str, split: str) -> list[Path]:
        return [self.path(kind, split, language) for language in self.languages]

    def unpack(
        self, archive: Path, wanted: Mapping[str, str], **options: object
    ) -> dict[str, Path]:
        """Extract files of an archive to raw/; returns the path of each.

        wanted: the end of each file's path in the archive, and its name in raw/
        options: what else decides which files are extracted, for the stage's record
        Raises MemAttnError as `extract` does, and if the pipeline's folder is in that of the
        archive.
        """
        if archive.is_dir() and self.folder.resolve().is_relative_to(archive.resolve()):
            raise MemAttnError(
                f"--output {self.folder} is in --archive {archive}; choose another --output"
            )
        targets = {end: self.folder / "raw" / name for end, name in wanted.items()}

        def work() -> Counts:
            extract(archive, targets)
            return {"files": len(targets)}

        inputs = sources(archive, targets)
        self.stages.run(f"raw-{archive.name}", inputs, [*targets.values()], work, **options)
        return targets

    def write_text(
        self,
        split: str,
        inputs: Sequence[Path],
        rows: Callable[[Counter[str]], Iterable[Sequence[str]]],
        documents: bool = False,
        unit: str = "",
        **options: object,
    ) -> Counts:
        """Write text/SPLIT.*; pairs with an empty side are dropped and counted.

        rows: yields a text for each language and, with `documents`, the document id; its argument
            is the counts of the stage, to which it adds what it leaves out
        unit: what a row is; by default a pair, or a line of one language
        """
        outputs = self.paths("text", split)
        if documents:
            outputs.append(self.path("text", split, "docid"))
        unit = unit or ("pairs" if len(self.languages) == 2 else "lines")

        def work() -> Counts:
            counts = Counter({unit: 0, "documents": 0} if documents else {unit: 0})
            with write_all_or_nothing(outputs) as files:
                last = None
                # A pair is a line of the first file, unless there are several or it is XML.
                plain = len(inputs) <= len(outputs) and inputs[0].suffix not in (".xml", ".sgm")
                path = inputs[0] if plain else None
                lines = progress(rows(counts), f"text/{split}", path)
                for row in lines:
                    if unit == "pairs" and not all(row[:2]):
                        counts["pairs with an empty side dropped"] += 1
                        continue
                    write_row(files, row)
                    counts[unit] += 1
                    if documents and row[-1] != last:
                        counts["documents"] += 1
                        last = row[-1]
                if not counts[unit]:
                    raise MemAttnError(f"{inputs[0]}: no text for {split}")
            return counts

        return self.stages.run(f"text-{split}", inputs, outputs, work, **options)

    def tokenise(self, splits: Sequence[str] = SPLITS, printable_only: bool = False) -> None:
        """text/ to tokens/ with Moses' rules."""
        for split in splits:
            for language in self.languages:
                make = partial(moses.tokeniser, language, printable_only)
                options = {"sacremoses": moses.version(), "printable_only": printable_only}
                self._rewrite("text", "tokens", split, language, make, None, **options)

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
                self._rewrite("tokens", "truecased", split, language, make, None, model, **options)

    def learn_bpe(
        self, inputs: Sequence[Path], name: str, symbols: int, total: bool = False
    ) -> Path:
        """Learn BPE codes from all inputs together and write them to NAME; see `bpe.learn`."""
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
                self._rewrite(kind, to, split, language, make, from_bpe, codes[language], **options)

    def learn_sentencepiece(
        self,
        inputs: Sequence[Path],
        name: str,
        training: subword.Training,
        option: str = "--vocab-size",
    ) -> Path:
        """Train a SentencePiece model, NAME.model, on all inputs together; see `subword.train`."""
        outputs = [self.folder / f"{name}.{suffix}" for suffix in subword.SUFFIXES]
        learn = partial(subword.train, inputs, self.folder / name, training, option)
        self.stages.run(name, inputs, outputs, learn, **training.record())
        return outputs[0]

    def copy_sentencepiece(self, models: Sequence[Path]) -> list[Path]:
        """Copy trained models to spm.model or, one a language, to spm.LANG.model."""
        names = ["spm"] if len(models) == 1 else [f"spm.{x}" for x in self.languages]
        copies = [self.folder / f"{name}.model" for name in names]
        for name, model, copy in zip(names, models, copies, strict=True):
            self.stages.run(name, [model], [copy], partial(copy_file, model, copy))
        return copies

    def apply_sentencepiece(
        self, kind: str, model: Path, splits: Sequence[str] = SPLITS, languages: Sequence[str] = ()
    ) -> None:
        """KIND/ to pieces/, all languages or those that are given."""
        for split in splits:
            inputs, outputs = (
                [self.path(folder, split, language) for language in languages or self.languages]
                for folder in (kind, "pieces")
            )
            work = partial(subword.encode, model, inputs, outputs[0].parent)
            name = "-".join(["pieces", split, *languages])
            if languages and self.force:  # what was made with one model for all of them
                self.stages.forget(f"pieces-{split}")
            self.stages.run(name, [*inputs, model], outputs, work)

    def copy_docids(self, splits: Sequence[str] = SPLITS) -> None:
        """Copy the document ids beside the pieces, where `binarise` reads them."""
        for split in splits:
            source, target = (self.path(kind, split, "docid") for kind in ("text", "pieces"))
            copy = partial(copy_file, source, target)
            self.stages.run(f"pieces-{split}-docid", [source], [target], copy)

    def drop_docids(self, splits: Sequence[str] = SPLITS) -> None:
        """Remove the document ids of an earlier text, which had them."""
        for split in splits:
            self.stages.forget(f"pieces-{split}-docid")

    def forget_other_splits(self, splits: Sequence[str]) -> None:
        """Remove what an earlier run has made of other splits, for which there is no data now."""
        for record in sorted((self.folder / "stages").glob("*.json")):
            made = re.fullmatch(
                r"(?:text|tokens|pieces)-(train|valid|test)([0-9]*)(-.+)?", record.stem
            )
            if made and made[1] + made[2] not in splits:
                self.stages.forget(record.stem)

    def write_dictionary(
        self,
        stage: str,
        name: str,
        words: Sequence[str],
        inputs: Sequence[Path] = (),
        unit: str = "words",
        /,
        **options: object,
    ) -> Path:
        """The words in their order as a dictionary of fairseq, FOLDER/NAME."""
        target = self.folder / name

        def work() -> Counts:
            with write_all_or_nothing([target]) as [file]:
                file.writelines(f"{word} 1\n" for word in words)
            return {unit: len(words)}

        self.stages.run(stage, inputs, [target], work, **options)
        return target

    def binarise(
        self,
        kind: str = "pieces",
        splits: Sequence[str] = SPLITS,
        dictionary: Path | Mapping[str, Path] | None = None,
        joined_dictionary: bool = True,
        part: str = "",
        model: Path | None = None,
    ) -> None:
        """KIND/ to bin/, with one dictionary for all languages, or one each; see `binarise`.

        part: the only language, whose data is in bin/PART/
        model: the SentencePiece model; if it spells in bytes, the dictionary that is made has all
            of its pieces
        """
        text = {split: self.folder / kind / split for split in splits}
        target = self.folder / "bin" / part
        made = binarise(
            text,
            [part] if part else self.languages,
            target,
            joined_dictionary=joined_dictionary,
            dictionary=dictionary,
            model=model if model and subword.spells(model) else None,
            workers=self.workers,
            force=self.force,
        )
        print(f"bin: {target} {'is ready' if made else 'was ready'}")

    def binarise_shards(
        self, shards: int, splits: Sequence[str], documents: bool, vocabulary: Mapping[str, Any]
    ) -> None:
        """pieces/ to bin/0/, bin/1/, ..., with one dictionary.

        The training documents, or lines without ids, are dealt to the shards in turn. The other
        splits are in bin/0/, where fairseq reads them.

        vocabulary: arguments of `binarise`, the dictionary or the model of whose pieces it is made
        """
        suffixes = [*self.languages, *["docid"] * documents]
        sources = [self.path("pieces", "train", suffix) for suffix in suffixes]
        paths = [self.path("pieces", f"train{n}", x) for n in range(shards) for x in suffixes]
        deal = partial(deal_documents, sources, paths, documents)
        self.stages.run("pieces-shards", sources, paths, deal, shards=shards)
        self.binarise_parts(shards, [x for x in splits if x != "train"], vocabulary)

    def binarise_parts(
        self, shards: int, others: Sequence[str], vocabulary: Mapping[str, Any]
    ) -> None:
        """pieces/trainN to bin/N/, and the other splits to bin/0/; see `binarise_shards`."""
        folders = [self.folder / "bin" / str(number) for number in range(shards)]
        for folder in folders:
            text = {"train": self.folder / "pieces" / f"train{folder.name}"}
            if folder == folders[0]:
                text |= {x: self.folder / "pieces" / x for x in others}
            options = {"workers": self.workers, "force": self.force, **vocabulary}
            binarise(text, self.languages, folder, **options)
            language = f".{self.languages[0]}" if len(self.languages) > 1 else ""
            if "model" in vocabulary:
                vocabulary = {"dictionary": folder / f"dict{language}.txt"}
        forget_other_parts(self.folder / "bin", [folder.name for folder in folders])
        print(f"bin: ready; the data of fairseq-train is {':'.join(map(str, folders))}")

    def _rewrite(
        self,
        kind: str,
        to: str,
        split: str,
        language: str,
        make: Callable[[], LineFunction],
        restore: LineFunction | None,
        *models: Path,
        **options: object,
    ) -> None:
        """KIND/ to TO/, line by line, for one split and language; `restore` as in `rewrite`."""
        source, target = (self.path(folder, split, language) for folder in (kind, to))
        self.stages.run(
            f"{to}-{split}-{language}",
            [source, *models],
            [target],
            partial(rewrite, source, target, make, self.workers, restore),
            **options,
        )


def deal_documents(
    sources: Sequence[Path], targets: Sequence[Path], documents: bool
) -> Counter[str]:
    """Write the documents, or lines without `documents`, to the shards in turn.

    sources: the text of each language and, with `documents`, the ids
    targets: as many files for each shard
    """
    counts, width = Counter({"lines": 0}), len(sources)
    number, current = -1, None
    with write_all_or_nothing(targets) as files:
        for _, row in progress(aligned_lines(sources), "shards", sources[0]):
            if not documents or row[-1] != current:
                number, current = (number + 1) % (len(files) // width), row[-1]
            write_row(files[number * width : (number + 1) * width], row)
            counts["lines"] += 1
    return counts


def copy_file(source: Path, target: Path) -> None:
    with write_all_or_nothing([target]) as [file], open(source, "rb") as content:
        shutil.copyfileobj(content, file.buffer)


def check_published(
    split: str, found: int, unit: str, source: str, published: Sequence[int]
) -> None:
    """Raise MemAttnError if the number found in a split is not one of the published ones."""
    if found not in published:
        raise MemAttnError(
            f"{split} has {found:,} {unit}, but {source} has "
            f"{' or '.join(f'{number:,}' for number in published)}; accept it with --unchecked"
        )
