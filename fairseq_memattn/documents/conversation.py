"""Documents that come line by line, as fairseq-interactive and `from_pretrained` hand them over."""

from collections.abc import Sequence

from torch import Tensor

from fairseq_memattn.data.document_ids import Documents


def documents_of_lines(lines: Sequence[Tensor]) -> Documents:
    """lines: sentences that end with eos; an empty one, of eos alone, ends a document."""
    empty = [len(line) == 1 for line in lines]
    starts = [i for i in range(len(lines)) if i == 0 or empty[i] or empty[i - 1]]
    return Documents(starts, len(lines))


class Conversation:
    """The open document: its last sentences and their translations.

    keep: how many of them the next sentence may need
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.sources: list[Tensor] = []
        self.translations: list[Tensor] = []

    def remember(self, source: Tensor, translation: Tensor) -> None:
        """An empty line ends the document."""
        self.sources.append(source)
        self.translations.append(translation)
        kept = self.keep if len(source) > 1 else 0
        surplus = max(0, len(self.sources) - kept)
        del self.sources[:surplus]
        del self.translations[:surplus]
