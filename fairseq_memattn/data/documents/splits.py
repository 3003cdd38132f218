"""Loading of the splits of binarised documents: sentences of two languages and document ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import ConcatDataset, Dictionary, data_utils
from fairseq.data.indexed_dataset import dataset_exists

from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.ids import Documents, read_docids
from fairseq_memattn.errors import MemAttnError

Side = tuple[str, Dictionary]  # the name of a language, and its dictionary


def load_split(
    folder: Path,
    split: str,
    sides: tuple[Side, Side],
    options: WindowOptions,
    *,
    dataset_impl: str | None = None,
    training: bool = False,
) -> DocumentDataset:
    """The windows of a split that `fairseq-preprocess` has binarised, for either direction.

    In training, train1, train2, ... are further parts of train.

    sides: source and target

    Raises FileNotFoundError for a split that does not exist. Raises MemAttnError for sides with
    different numbers of sentences, and for document ids that do not fit.
    """
    parts = [_load_part(folder, split, sides, dataset_impl)]
    while training:
        try:
            parts.append(_load_part(folder, f"{split}{len(parts)}", sides, dataset_impl))
        except FileNotFoundError:
            break
    sources, targets, documents = zip(*parts, strict=True)
    starts = np.cumsum([0, *map(len, sources)])
    source, target = map(_joined, (sources, targets))
    sizes = (np.asarray(source.sizes), None if target is None else np.asarray(target.sizes))
    joined = [one.starts + start for one, start in zip(documents, starts[:-1], strict=True)]
    return DocumentDataset(
        source,
        target,
        sizes,
        Documents(np.concatenate(joined), len(source)),
        options,
        name=split,
        training=training,
        parts=starts[:-1].tolist(),
    )


def _joined(parts: Sequence[Any]) -> Any:
    if any(part is None for part in parts):
        return None
    return parts[0] if len(parts) == 1 else ConcatDataset(parts)


def _load_part(
    folder: Path, split: str, sides: tuple[Side, Side], dataset_impl: str | None
) -> tuple[Any, Any, Documents]:
    """The source, the target and the documents of a split, or of a part of a training set."""
    languages = (sides[0][0], sides[1][0])
    prefix = split_prefix(folder, split, *languages, dataset_impl)
    source, target = (
        data_utils.load_indexed_dataset(f"{prefix}.{language}", dictionary, dataset_impl)
        for language, dictionary in sides
    )
    if source is None:
        raise FileNotFoundError(f"Dataset not found: {split} ({folder})")
    if target is not None and len(source) != len(target):
        raise MemAttnError(
            f"split {split} in {folder} has {len(source)} {languages[0]} sentences, "
            f"but {len(target)} {languages[1]} sentences"
        )
    return source, target, read_docids(Path(f"{prefix}.docids"), len(source))


def check_separator(dataset: DocumentDataset, symbol: str) -> None:
    """Raises MemAttnError for a sentence with a separator, as in windows made beforehand.

    symbol: the separator, for the error message
    """
    options = dataset.options
    for side, sentences, separator in (
        ("source", dataset.source, options.source_separator),
        ("target", dataset.target, options.target_separator),
    ):
        if sentences is None:
            continue
        for number in range(len(sentences)):
            if bool(sentences[number].eq(separator).any()):
                raise MemAttnError(
                    f"{dataset.name}, {side} sentence {number + 1}: the text already contains "
                    f"the separator {symbol!r}; binarise single sentences, or choose another "
                    "--context-separator"
                )


def split_prefix(
    folder: Path, split: str, source: str, target: str, dataset_impl: str | None = None
) -> Path:
    """`folder/split.SOURCE-TARGET`, with which the names of the split's files begin.

    As in fairseq's translation task, the files may have been binarised for the reverse direction;
    then it is `folder/split.TARGET-SOURCE`.
    """
    given, reverse = (folder / f"{split}.{a}-{b}" for a, b in ((source, target), (target, source)))
    if dataset_exists(f"{given}.{source}", dataset_impl):
        return given
    return reverse if dataset_exists(f"{reverse}.{source}", dataset_impl) else given
