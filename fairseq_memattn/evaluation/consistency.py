"""LTCR: how often a word that a document repeats is translated in the same way.

The lexical translation consistency ratio of Lyu et al. (2021, "Encouraging Lexical Translation
Consistency for Document-Level Neural Machine Translation").
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import comb
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.word_alignment import Links, Words
from fairseq_memattn.evaluation.words import content_word

LISTED = 20  # words that are named as the least consistent


class Consistency(NamedTuple):
    """The consistency of some source words in all documents.

    words: repeated words, counted once a document, with two or more aligned occurrences
    occurrences: those of repeated words; aligned: those of them that have a translation
    pairs: of aligned occurrences of a word in a document; equal: those with equal translations
    """

    words: int
    occurrences: int
    aligned: int
    pairs: int
    equal: int

    @property
    def ltcr(self) -> float | None:
        """The percentage of pairs that are equal; None without pairs."""
        return 100 * self.equal / self.pairs if self.pairs else None

    def as_dict(self) -> dict[str, Any]:
        return {"LTCR": self.ltcr, **self._asdict()}


class RepeatedWord(NamedTuple):
    """A source word that occurs more than once in a document.

    translations: how often it has each translation; occurrences: also those without a translation
    """

    document: str
    word: str
    occurrences: int
    translations: Counter[str]

    @property
    def aligned(self) -> int:
        return self.translations.total()

    @property
    def pairs(self) -> int:
        return comb(self.aligned, 2)

    @property
    def equal(self) -> int:
        return sum(comb(count, 2) for count in self.translations.values())


def repeated_words(
    sources: Sequence[Words],
    targets: Sequence[Words],
    alignments: Sequence[Links],
    documents: Sequence[Document],
    function_words: set[str],
) -> list[RepeatedWord]:
    """The content words that occur more than once in a document, with their translations.

    A translation consists of the target words that an occurrence is linked to, in their order.
    Upper and lower case are the same.
    """
    found = []
    for name, start, stop in documents:
        translations: defaultdict[str, list[str]] = defaultdict(list)
        for index in range(start, stop):
            linked: defaultdict[int, list[str]] = defaultdict(list)
            for position, target in alignments[index]:
                linked[position].append(targets[index][target].casefold())
            for position, token in enumerate(sources[index]):
                if word := content_word(token, function_words):
                    translations[word].append(" ".join(linked[position]))
        found += [
            RepeatedWord(name, word, len(each), Counter(filter(None, each)))
            for word, each in translations.items()
            if len(each) > 1
        ]
    return found


def consistency(repeated: Sequence[RepeatedWord]) -> Consistency:
    """The sums over words and documents."""
    return Consistency(
        sum(each.aligned > 1 for each in repeated),
        sum(each.occurrences for each in repeated),
        sum(each.aligned for each in repeated),
        sum(each.pairs for each in repeated),
        sum(each.equal for each in repeated),
    )


def least_consistent(repeated: Sequence[RepeatedWord]) -> list[dict[str, Any]]:
    """Up to 20 words with the most unequal pairs, for JSON."""
    ranked = sorted(repeated, key=lambda each: each.equal - each.pairs)[:LISTED]
    return [
        {
            "document": each.document,
            "word": each.word,
            "translations": dict(each.translations.most_common()),
        }
        for each in ranked
        if each.pairs > each.equal
    ]


def names(sentences: Sequence[Words]) -> set[str]:
    """The casefolded words whose occurrences after the first word of a line are all capitalised.

    In languages that capitalise nouns, nouns are names.
    """
    capitalised: set[str] = set()
    other: set[str] = set()
    for tokens in sentences:
        for token in tokens[1:]:
            (capitalised if token[0].isupper() else other).add(token.casefold())
    return capitalised - other


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
