"""What a translation model attends to, sentence by sentence in a document, for `memattn view`."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.documents.ids import Documents
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.memories import attentions, memories_of

SLOTS, SELECTOR, SOFTMAX = "slots", "selector", "softmax"
UNIT = 1000  # weights are whole numbers in thousandths, which make the page smaller


class DocumentView:
    """The weights of the last layer for each token of a document's translation.

    model: a translation model, in evaluation mode
    source, target: the sentences of the document, (S,) and (T,) each, ending with eos

    Raises MemAttnError for a model whose forward pass shows neither memory slots nor a selection
    nor weights of softmax attention.
    """

    def __init__(
        self,
        model: nn.Module,
        windows: WindowOptions,
        source: Sequence[Tensor],
        target: Sequence[Tensor],
    ) -> None:
        sizes = [np.array([len(row) for row in side], dtype=np.int64) for side in (source, target)]
        one = Documents(np.array([0]), len(source))
        self.dataset = DocumentDataset(source, target, (sizes[0], sizes[1]), one, windows)
        self.model = model
        self.cross = attentions(model).get("cross", [])
        self.kind = SLOTS if self.cross else ""

    @property
    def layer(self) -> int | None:
        """The number of the decoder layer whose slots are shown, from 0; None without slots."""
        if not self.cross:
            return None
        names = {module: name for name, module in self.model.named_modules()}
        return int(names[self.cross[-1]].split(".")[-2])  # ..., "layers", "5", "encoder_attn"

    def sentences(self) -> Iterator[dict[str, Any]]:
        """For each sentence, as numbers for JSON:

        first: the first sentence of its window
        writing (H, S, M) and reading (H, T, M): with memory slots, phi and p of each head; S are
            the tokens of the window, T those of the sentence
        weights: (T, S), of the tokens of the window; with a selector (T, K), of its sentences
        """
        device = next(self.model.parameters()).device
        for number in range(len(self.dataset)):
            batch = self.dataset.collater([self.dataset[number]])["net_input"]
            given = {name: value.to(device) for name, value in batch.items()}
            first = number - int(self.dataset.source_counts[number])
            length = len(self.dataset.reference(number))
            if self.cross:
                (memory,) = memories_of(self.model, given, self.cross[-1:])
                shown = {"writing": memory.writing, "reading": memory.reading[:, -length:]}
            else:
                shown = {"weights": self._weights(given)[-length:]}
            yield {"first": first} | {name: whole(weights) for name, weights in shown.items()}

    def _weights(self, given: dict[str, Tensor]) -> Tensor:
        """Of the selector (T, K), or of softmax attention as the mean of the heads, (T, S)."""
        with torch.no_grad():
            extra = self.model(**given)[1] or {}
        for kind, name in ((SELECTOR, "selection"), (SOFTMAX, "attn")):
            found = extra.get(name)
            if found is not None and found[-1] is not None:
                self.kind = kind
                weights: Tensor = found[-1][0]
                return weights
        raise MemAttnError(
            "the model must have memory slots in its cross attention, a selector, or fairseq's "
            "softmax attention, but its forward pass returns no weights"
        )


def whole(weights: Tensor) -> Any:
    """In thousandths, as nested lists."""
    return (weights * UNIT).round().int().tolist()
