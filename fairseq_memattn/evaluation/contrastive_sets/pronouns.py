"""Which pronoun a ContraPro group is about, which its text files do not say."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

WORD = re.compile(r"\w+")
# The forms that a translation of "it" has in ContraPro, nominative and accusative.
PRONOUNS = {"er": "er", "ihn": "er", "sie": "sie", "es": "es"}


def german_pronoun(reference: str, variants: Sequence[str]) -> str | None:
    """`er`, `sie` or `es`: the one that every variant has replaced.

    Of the reference's words, without regard to case, those count that no variant has kept: a
    variant may change other words along with the pronoun, such as a possessive, and another
    pronoun in its turn, but not all variants change the same ones.
    None where what they all replace is none of the three, or several of them.
    """
    words = WORD.findall(reference.lower())
    replaced = set(range(len(words)))
    for variant in variants:
        replaced &= _replaced(words, WORD.findall(variant.lower()))
    found = {PRONOUNS[words[index]] for index in replaced if words[index] in PRONOUNS}
    return found.pop() if len(found) == 1 else None


def _replaced(words: list[str], others: list[str]) -> set[int]:
    """The indices of `words` that `others` lacks, in the alignment of difflib."""
    blocks = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    kept = {block.a + offset for block in blocks for offset in range(block.size)}
    return set(range(len(words))) - kept
