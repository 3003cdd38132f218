"""Documents that are read line by line, in `fairseq-interactive` and `from_pretrained`."""

from collections.abc import Sequence

from torch import Tensor

from fairseq_memattn.attention.nn.carried import DocumentMemory
from fairseq_memattn.documents.ids import Documents


def documents_of_lines(lines: Sequence[Tensor]) -> Documents:
    """The documents of lines. An empty line (eos only) ends a document, and is itself a document.

    lines: sentences that end with eos
    """
    empty = [len(line) == 1 for line in lines]
    starts = [i for i in range(len(lines)) if i == 0 or empty[i] or empty[i - 1]]
    return Documents(starts, len(lines))


class Conversation:
    """The last sentences of the current document, and their translations.

    keep: number of sentences to keep, the largest number of context sentences

    memory: with --stream, of each model after these sentences; None at the beginning of a document
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.sources: list[Tensor] = []
        self.translations: list[Tensor] = []
        self.memory: list[DocumentMemory] | None = None

    def remember(self, source: Tensor, translation: Tensor) -> None:
        """Adds a sentence. An empty line ends the document and clears the conversation."""
        self.sources.append(source)
        self.translations.append(translation)
        kept = self.keep if len(source) > 1 else 0
        surplus = max(0, len(self.sources) - kept)
        del self.sources[:surplus]
        del self.translations[:surplus]
