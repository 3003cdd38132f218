"""The pronoun that a group of ContraPro tests, which its text files do not name."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

WORD = re.compile(r"\w+")
# The translations of "it" and "they", by language; an accusative counts as its nominative.
PRONOUNS = {
    "de": {"er": "er", "ihn": "er", "sie": "sie", "es": "es"},
    "fr": {"il": "il", "elle": "elle", "ils": "ils", "elles": "elles"},
}


def replaced_pronoun(language: str, reference: str, variants: Sequence[str]) -> str | None:
    """The pronoun of the reference that every variant has replaced; None if it is not known.

    Only words of the reference that all variants replace are considered, without regard to case. A
    variant may also change other words, such as a possessive or another pronoun, but the variants
    do not all change the same ones. The result is None if none of the language's pronouns remains,
    or several, and for a language without an entry in `PRONOUNS`.
    """
    pronouns = PRONOUNS.get(language, {})
    words = WORD.findall(reference.lower())
    replaced = set(range(len(words)))
    for variant in variants:
        replaced &= _replaced(words, WORD.findall(variant.lower()))
    found = {pronouns[words[index]] for index in replaced if words[index] in pronouns}
    return found.pop() if len(found) == 1 else None


def _replaced(words: list[str], others: list[str]) -> set[int]:
    """The indices of `words` that have no match in `others`, in the alignment of difflib."""
    blocks = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    kept = {block.a + offset for block in blocks for offset in range(block.size)}
    return set(range(len(words))) - kept
