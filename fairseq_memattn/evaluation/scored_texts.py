"""The sentences of a test set, and the systems that have translated them."""

from collections.abc import Mapping
from typing import NamedTuple

from fairseq_memattn.evaluation.document_lines import Document


class ScoredTexts(NamedTuple):
    """Line-aligned sentences: those of each system, the references, the sources, if any.

    documents: empty without --docids
    more_references: of other translators, each as many lines
    """

    systems: Mapping[str, list[str]]
    references: list[str]
    sources: list[str]
    documents: list[Document]
    more_references: list[list[str]]

    @property
    def all_references(self) -> list[list[str]]:
        """The lines of each translator."""
        return [self.references, *self.more_references]
