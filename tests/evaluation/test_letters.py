"""Letters of scripts that write vowels as marks, in everything that looks at words."""

import unicodedata

import pytest

from fairseq_memattn.evaluation.consistency import consistency, repeated_words
from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.fairseq_output import same_letters
from fairseq_memattn.evaluation.letters import letters
from fairseq_memattn.evaluation.realignment import units
from fairseq_memattn.evaluation.words import content_word, tokenise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("«की», का!", "कीका"),
        ("ก็ ๑.", "ก็๑"),
        (unicodedata.normalize("NFD", "café-1"), unicodedata.normalize("NFD", "café1")),
        ("\u2764\ufe0f a\u2764\ufe0f", "a"),  # a heart, whose mark is on no letter
    ],
)
def test_marks_belong_to_letters(text, expected):
    assert letters(text) == expected


def test_vowel_signs_distinguish_words():
    assert len({unit.key for unit in units("की का के को कि")}) == 5
    assert not same_letters("लड़की", "लड़का")
    assert same_letters("लड़की ।", "लड़की!")


@pytest.mark.parametrize("word", ["किताब", "தமிழ்", "ไทยที่", unicodedata.normalize("NFD", "café")])
def test_words_with_marks_are_content_words(word):
    assert content_word(word, set()) == word
    assert content_word(f"{word}1", set()) is None
    assert content_word(word, {word}) is None


def test_spellings_of_one_accent_are_one_translation():
    forms = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")]
    assert forms[0] != forms[1]
    targets = tokenise(forms, "13a")
    found = repeated_words([["house"]] * 2, targets, [[(0, 0)]] * 2, [Document("d", 0, 2)], set())
    assert consistency(found).ltcr == 100
