"""Loading of the splits of binarised documents: sentences of two languages and document ids."""

from pathlib import Path

import numpy as np
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import dataset_exists

from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.ids import read_docids
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

    sides: source and target

    Raises FileNotFoundError for a split that does not exist. Raises MemAttnError for sides with
    different numbers of sentences, for document ids that do not fit, and for a training set in
    several parts.
    """
    languages = (sides[0][0], sides[1][0])
    prefix, more = (
        split_prefix(folder, name, *languages, dataset_impl) for name in (split, f"{split}1")
    )
    source, target = (
        data_utils.load_indexed_dataset(f"{prefix}.{language}", dictionary, dataset_impl)
        for language, dictionary in sides
    )
    if training and Path(f"{more}.{languages[0]}.bin").exists():
        raise MemAttnError(
            f"{folder} has {split} and {split}1, but --task document_translation takes a single "
            "training set; join them before binarising"
        )
    if source is None:
        raise FileNotFoundError(f"Dataset not found: {split} ({folder})")
    if target is not None and len(source) != len(target):
        raise MemAttnError(
            f"split {split} in {folder} has {len(source)} {languages[0]} sentences, "
            f"but {len(target)} {languages[1]} sentences"
        )
    documents = read_docids(Path(f"{prefix}.docids"), len(source))
    sizes = (np.asarray(source.sizes), None if target is None else np.asarray(target.sizes))
    return DocumentDataset(source, target, sizes, documents, options, name=split, training=training)


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
