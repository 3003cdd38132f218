"""The tokenizer of sacreBLEU that splits a text, where the default one does not.

BLEU counts n-grams of words. sacreBLEU's default tokenizer, 13a, finds words at spaces and at
punctuation of ASCII. It takes a sentence of a language without spaces for one word, and in Korean
a word with all of its particles.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fairseq_memattn.evaluation.swapped_groups import script

# They split text of any language; none leaves it as it is, for text that is tokenised already.
OF_ALL_LANGUAGES = frozenset({"none", "char", "spm", "flores101", "flores200", "spBLEU-1K"})
# The share of letters from which the text is taken for the language.
MIN_SHARE, MIN_KANA = 0.1, 0.05
DOWNLOADED = "flores200, whose model sacreBLEU downloads, or char"


class Language(NamedTuple):
    """A language that 13a does not split into words.

    tokenizer: the one of sacreBLEU for this language alone; empty if there is none
    advice: the tokenizers to take
    """

    name: str
    tokenizer: str
    advice: str


CHINESE = Language("Chinese", "zh", "zh")
JAPANESE = Language("Japanese", "ja-mecab", "ja-mecab, which needs pip install 'sacrebleu[ja]'")
# By the first word of a letter's name in Unicode.
SCRIPTS = {
    "CJK": CHINESE,
    "HIRAGANA": JAPANESE,
    "KATAKANA": JAPANESE,
    "HANGUL": Language("Korean", "ko-mecab", "ko-mecab, which needs pip install 'sacrebleu[ko]'"),
    "THAI": Language("Thai", "", DOWNLOADED),
    "LAO": Language("Lao", "", DOWNLOADED),
    "KHMER": Language("Khmer", "", DOWNLOADED),
    "MYANMAR": Language("Burmese", "", DOWNLOADED),
    "TIBETAN": Language("Tibetan", "", DOWNLOADED),
}


def unsplit_language(lines: Iterable[str]) -> Language | None:
    """The language of the text, if 13a does not split it into words."""
    letters = Counter(script(character) for line in lines for character in line)
    del letters[None]
    found: Counter[Language] = Counter()
    for name in SCRIPTS.keys() & letters.keys():
        found[SCRIPTS[name]] += letters[name]
    if found.total() <= MIN_SHARE * letters.total():
        return None
    # Japanese has Chinese characters as well, and can have more of them than its own.
    if found[JAPANESE] > MIN_KANA * found.total():
        found[JAPANESE] += found.pop(CHINESE, 0)
    return found.most_common(1)[0][0]


def tokenizer_warning(lines: Iterable[str], tokenizer: str, option: str) -> str:
    """Says that a tokenizer does not split a text into words, and which does; "" if it does.

    option: of the command, which selects the tokenizer
    """
    language = None if tokenizer in OF_ALL_LANGUAGES else unsplit_language(lines)
    if language is None or tokenizer == language.tokenizer:
        return ""
    return (
        f"the tokenizer {tokenizer} does not split {language.name} into words, so BLEU is of "
        f"little meaning; give {option} {language.advice}"
    )
