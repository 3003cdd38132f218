"""Generative context sets: forms that the translation of a sentence in context must have.

A system translates the source with its context. It is correct if the last sentence of its output
has the expected form.
"""

import math
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_memattn.evaluation.contrastive_sets.contrapro import WORD
from fairseq_memattn.evaluation.tables import p_text, table

WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
SEPARATOR = "<eos>"  # between two sentences of a line, in a source or in a translation
# What an example belongs to within its set, and counts are reported for.
PARTS = ("rule", "pronoun", "distance")


@dataclass(frozen=True)
class Example:
    """One source whose translation must have a form.

    expected: the form, one or more words
    set: the name of the set; category: the phenomenon that the set tests
    rule: the rule that found the example, such as "DO.ELL"; None in a set without rules
    pronoun: the form, if it is a pronoun of GenPro, and otherwise None
    distance: the number of sentences from the antecedent to the source, or ">3"; None if it is not
        known
    source: the sentences of the source, oldest first; the last one is tested. Empty if they are not
        known
    """

    expected: str
    set: str
    category: str
    rule: str | None = None
    pronoun: str | None = None
    distance: int | str | None = None
    source: tuple[str, ...] = ()

    def is_right(self, translation: str, split: Callable[[str], list[str]]) -> bool:
        """Whether a translation, with or without that of the context, has the form at its end.

        Of a line with separators, the text after the last one counts. A pronoun of GenPro must be a
        word of this text. Another form must be in the last sentence of this text.

        split: the sentences of a text, as `sentence_splitter` returns
        """
        last = translation.split(SEPARATOR)[-1].strip()
        if self.pronoun is not None:
            return self.pronoun.lower() in WORD.findall(last.lower())
        sentences = split(last)
        return bool(sentences) and has_form(sentences[-1], self.expected)

    def joined(self, translations: Sequence[str]) -> str:
        """The translations of the sentences of the source as one line, which `is_right` judges."""
        between = " " if self.pronoun is None else f" {SEPARATOR} "
        return between.join(translations)


def has_form(sentence: str, expected: str) -> bool:
    """Whether a sentence has a form between two spaces, as ctxpro's scorer decides it.

    Case is ignored. ASCII punctuation is removed from the sentence, but not from the form and
    without leaving a space: "can't" becomes "cant", and typographic quotation marks stay.
    """
    words = sentence.lower().translate(WITHOUT_PUNCTUATION)
    return f" {expected.lower()} " in f" {words} "


def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """A function from a text to its sentences: that of the package sentence-splitter.

    Its rules are those of Philipp Koehn and Josh Schroeder for Europarl, with the abbreviations of
    each language. ctxpro's scorer uses the same package.

    language: the code of two letters, such as "de"

    Raises ImportError if the package is not installed, and ValueError for an unknown language.
    """
    try:
        from sentence_splitter import SentenceSplitter, SentenceSplitterException
    except ImportError:
        raise ImportError(
            "--lang needs the package sentence-splitter (`pip install sentence-splitter`)"
        ) from None
    try:
        return SentenceSplitter(language=language).split
    except SentenceSplitterException:
        raise ValueError(
            f"--lang must be a language of the package sentence-splitter, such as de, but is "
            f"{language!r}"
        ) from None


def judge_translations(
    examples: Sequence[Example], translations: Sequence[str], split: Callable[[str], list[str]]
) -> list[bool]:
    """Whether each translation is right, see `Example.is_right`.

    translations: one for each example, with or without the translation of the context
    split: the sentences of a text, as `sentence_splitter` returns

    Raises ValueError for another number of translations than examples.
    """
    if len(translations) != len(examples):
        raise ValueError(f"there are {len(translations)} lines for {len(examples)} examples")
    pairs = zip(examples, translations, strict=True)
    return [example.is_right(translation, split) for example, translation in pairs]


def accuracies(
    examples: Sequence[Example], verdicts: Sequence[bool], baseline: Sequence[bool] | None = None
) -> list[dict[str, Any]]:
    """Counts of each set as a list for JSON: the whole set, then its parts.

    An entry has `set`, `category`, `correct`, `total` and `accuracy` in percent. That of a part of
    the set has `rule`, `pronoun` or `distance` as well.

    baseline: the verdicts of another system; each entry then has `p`, see `p_value`
    """
    entries = []
    for name in dict.fromkeys(example.set for example in examples):
        members = [index for index, example in enumerate(examples) if example.set == name]
        start = {"set": name, "category": examples[members[0]].category}
        entries.append({**start, **_counts(members, verdicts, baseline)})
        for key in PARTS:
            for value, part in _parts(examples, members, key).items():
                entries.append({**start, key: value, **_counts(part, verdicts, baseline)})
    return entries


def _parts(examples: Sequence[Example], members: Sequence[int], key: str) -> dict[Any, list[int]]:
    """The examples of each value, rules and pronouns in order of appearance, distances sorted."""
    parts: dict[Any, list[int]] = {}
    for index in members:
        value = getattr(examples[index], key)
        if value is not None:
            parts.setdefault(value, []).append(index)
    if key != "distance":
        return parts
    return dict(sorted(parts.items(), key=lambda part: (isinstance(part[0], str), part[0])))


def _counts(
    indices: list[int], verdicts: Sequence[bool], baseline: Sequence[bool] | None
) -> dict[str, Any]:
    own = [verdicts[index] for index in indices]
    counts = {"correct": sum(own), "total": len(own), "accuracy": 100 * sum(own) / len(own)}
    if baseline is not None:
        counts["p"] = p_value([baseline[index] for index in indices], own)
    return counts


def p_value(baseline: Sequence[bool], other: Sequence[bool]) -> float:
    """The two-sided p of McNemar's exact test of two systems on the same examples.

    It is the probability that the examples that only one of them has right, each of which is that
    of either system with probability 1/2, are divided at least as unevenly (Dietterich, 1998,
    "Approximate statistical tests for comparing supervised classification learning algorithms").
    """
    gained = sum(not a and b for a, b in zip(baseline, other, strict=True))
    lost = sum(a and not b for a, b in zip(baseline, other, strict=True))
    differing = gained + lost
    # Each count is an integer, so the sum is exact; it is 1 at most.
    term, tail = 1, 0
    for count in range(min(gained, lost) + 1):
        tail += term
        term = term * (differing - count) // (count + 1)
    return min(1.0, math.exp(math.log(2 * tail) - differing * math.log(2)))


def accuracies_text(entries: Sequence[dict[str, Any]]) -> str:
    """The entries of `accuracies`, each with its `system`, as a table."""
    rows = [["system", "set", "correct", "total", "accuracy", "p"]]
    for entry in entries:
        name = entry["set"]
        for part in PARTS:
            if part in entry:
                name = f"  {part} {entry[part]}"
        p = p_text(entry["p"]) if "p" in entry else ""
        counts = [str(entry[key]) for key in ("correct", "total")]
        rows.append([entry["system"], name, *counts, f"{entry['accuracy']:.1f} %", p])
    return table(rows, left=2)
