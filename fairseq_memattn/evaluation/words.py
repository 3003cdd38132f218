"""The words of sentences, by sacreBLEU's tokenizers, and which of them are content words."""

import unicodedata
from collections import Counter
from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.letters import is_mark

# A word that occurs in a larger share of the documents is a function word.
MAX_DOCUMENTS = 0.5


def tokenise(lines: Sequence[str], tokenize: str) -> list[list[str]]:
    """The tokens of each line, in Unicode's normal form NFC, in which accents have one spelling.

    tokenize: the name of one of sacreBLEU's tokenizers
    """
    split = BLEU(tokenize=tokenize, force=True).tokenizer
    return [split(unicodedata.normalize("NFC", line.strip())).split() for line in lines]


def count_words(tokens: Sequence[str]) -> int:
    """The number of tokens that have a letter or a digit."""
    return sum(any(map(str.isalnum, token)) for token in tokens)


def function_words(sentences: Sequence[Sequence[str]], documents: Sequence[Document]) -> set[str]:
    """The casefolded words that occur in more than half of the documents, such as articles."""
    counts: Counter[str] = Counter()
    for _, start, stop in documents:
        counts.update({token.casefold() for tokens in sentences[start:stop] for token in tokens})
    limit = MAX_DOCUMENTS * len(documents)
    return {word for word, count in counts.items() if count > limit}


def content_word(token: str, function_words: set[str]) -> str | None:
    """The casefolded token if it has letters only and is no function word, and otherwise None."""
    word = token.casefold()
    has_letters_only = token[:1].isalpha() and all(one.isalpha() or is_mark(one) for one in token)
    return word if has_letters_only and word not in function_words else None
