"""Lexical cohesion: the share of content words that repeat others of their document.

LC and RC of Wong and Kit (2012, "Extending Machine Translation Evaluation Metrics with Lexical
Cohesion to Document Level"), without a thesaurus.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.word_alignment import Words
from fairseq_memattn.evaluation.words import content_word

STEM_LETTERS = 5


class Cohesion(NamedTuple):
    """Counts over all documents.

    content: content words; repeated: those whose form, cohesive: those whose stem has occurred
    before in the document
    """

    content: int
    repeated: int
    cohesive: int

    @property
    def rc(self) -> float | None:
        """Percentage of content words that repeat a form; None without content words."""
        return 100 * self.repeated / self.content if self.content else None

    @property
    def lc(self) -> float | None:
        """Percentage of content words that repeat a form or a stem; None without content words."""
        return 100 * self.cohesive / self.content if self.content else None

    def as_dict(self) -> dict[str, Any]:
        """A dictionary for JSON."""
        return {"LC": self.lc, "RC": self.rc, **self._asdict()}


def stem(word: str) -> str:
    """The first five letters (McNamee and Mayfield, 2004), for which no dictionary is needed."""
    return word[:STEM_LETTERS]


def cohesion(
    sentences: Sequence[Words], documents: Sequence[Document], function_words: set[str]
) -> Cohesion:
    """Counts content words, and those that repeat others. Upper and lower case are the same."""
    content = repeated = cohesive = 0
    for _, start, stop in documents:
        words = [
            word
            for tokens in sentences[start:stop]
            for token in tokens
            if (word := content_word(token, function_words))
        ]
        content += len(words)
        repeated += len(words) - len(set(words))
        cohesive += len(words) - len(set(map(stem, words)))
    return Cohesion(content, repeated, cohesive)
