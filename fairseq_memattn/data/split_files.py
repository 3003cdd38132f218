"""The names of the files of a split of two languages."""

from pathlib import Path

from fairseq.data.indexed_dataset import dataset_exists


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
