"""Documents that come line by line, from `fairseq-interactive` and `from_pretrained`."""

from collections.abc import Sequence

from torch import Tensor

from fairseq_memattn.data.document_ids import Documents


def documents_of_lines(lines: Sequence[Tensor]) -> Documents:
    """The documents of lines. An empty line, eos alone, ends a document and is one by itself.

    lines: sentences that end with eos
    """
    empty = [len(line) == 1 for line in lines]
    starts = [i for i in range(len(lines)) if i == 0 or empty[i] or empty[i - 1]]
    return Documents(starts, len(lines))


class Conversation:
    """The last sentences of the open document, and their translations.

    keep: how many sentences to keep, the most that the context of the next one holds
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.sources: list[Tensor] = []
        self.translations: list[Tensor] = []

    def remember(self, source: Tensor, translation: Tensor) -> None:
        """Adds a sentence. An empty line ends the document, which clears the conversation."""
        self.sources.append(source)
        self.translations.append(translation)
        kept = self.keep if len(source) > 1 else 0
        surplus = max(0, len(self.sources) - kept)
        del self.sources[:surplus]
        del self.translations[:surplus]
