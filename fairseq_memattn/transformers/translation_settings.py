"""How a model translates: what its folder records, and the options of the search."""

from dataclasses import dataclass
from typing import Any

from fairseq_memattn.errors import LARGEST, MemAttnError, check_least


@dataclass(frozen=True)
class TranslationSettings:
    """`translation` in config.json: how the model reads the sentences of a document.

    source_context, target_context: the largest number of previous sentences on either side
    max_source, max_target: the largest number of tokens of a window on either side, eos included
    separator: the symbol between two sentences; None without context
    source_token, target_token: the symbol before each window; None without
    as_sequences: whether the previous source sentences are separate sequences (T5Mem)
    """

    source_context: int
    target_context: int
    max_source: int
    max_target: int
    separator: str | None = None
    as_sequences: bool = False
    source_token: str | None = None
    target_token: str | None = None


@dataclass(frozen=True)
class SearchOptions:
    """The options of fairseq-generate, with its defaults, and the size of a batch.

    A translation has at most max_len_a * tokens of its source + max_len_b tokens.

    Raises MemAttnError for an option outside of its limits.
    """

    beam: int = 5
    lenpen: float = 1.0
    max_len_a: float = 0.0
    max_len_b: int = 200
    batch_size: int = 32

    def __post_init__(self) -> None:
        for name, least in (("beam", 1), ("max_len_a", 0), ("max_len_b", 0), ("batch_size", 1)):
            check_least(self, name, least, LARGEST)
        check_least(self, "lenpen", -LARGEST, LARGEST)


def settings_of(config: Any, name: str) -> TranslationSettings:
    """The settings in a configuration. Raises MemAttnError, with the name, if it has none."""
    try:
        return TranslationSettings(**config.translation)
    except (AttributeError, TypeError):
        raise MemAttnError(
            f"{name} is not a translation model that `memattn export` has written: its config.json "
            "has no `translation`, which those of --task translation and document_translation have"
        ) from None
