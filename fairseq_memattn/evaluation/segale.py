"""Scores of documents that were translated as a whole, after SEGALE (Wang et al., 2025, "Extending
Automatic Machine Translation Evaluation to Book-Length Documents").

The sentences of a translation are aligned to those of the reference. A sentence of the reference
without a translation, and one of the translation without a reference, get a metric's worst score.
The score of a document is the mean over these sentences and all others, and that of a system the
mean over its documents. Unlike SEGALE, which aligns embeddings of sentences to the source,
`memattn align` aligns words to the reference.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fairseq_memattn.evaluation.comet_score import Texts
from fairseq_memattn.evaluation.document_lines import Aligned, Document
from fairseq_memattn.evaluation.text_columns import file_of, is_table, read_column


def read_aligned(systems: Mapping[str, Path], lines: int) -> dict[str, Aligned]:
    """What `memattn align` has written of each system.

    Raises ValueError for what is no such table, and for another number of lines.
    """
    found = {}
    for name, path in systems.items():
        if not is_table(path):
            raise ValueError(f"--segale needs a table of memattn align, but --system is {path}")
        kept, added = (read_column(Path(f"{file_of(path)}:{x}"), x) for x in ("kept", "added"))
        if len(kept) != lines or not all(map(str.isdecimal, added)):
            raise ValueError(f"--segale: {path} is not what memattn align writes for --reference")
        found[name] = Aligned(kept, [int(number) for number in added])
    return found


def omitted_and_added(aligned: Aligned) -> tuple[float, float]:
    """The percentages of omitted and of added sentences, of those of the reference and added."""
    omitted, added = sum(not text.strip() for text in aligned.kept), sum(aligned.added)
    total = len(aligned.kept) + added
    return 100 * omitted / total, 100 * added / total


def segale_score(
    scores: Callable[[Texts], Sequence[float]],
    texts: Texts,
    aligned: Aligned,
    documents: Sequence[Document],
    worst: float,
) -> float:
    """The mean of the documents' means.

    scores: a score for each text; it gets those with a translation alone
    """
    rows = [row for row, text in enumerate(aligned.kept) if text.strip()]
    columns = (texts.sources, aligned.kept, texts.references)
    chosen = Texts(*([column[row] for row in rows] if column else [] for column in columns))
    found = dict(zip(rows, scores(chosen), strict=True))
    means = []
    for _, start, stop in documents:
        values = [found.get(row, worst) for row in range(start, stop)]
        values += sum(aligned.added[start:stop]) * [worst]
        means.append(sum(values) / len(values))
    return sum(means) / len(means)
