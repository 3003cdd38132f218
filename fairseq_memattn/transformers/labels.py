"""What a decoder reads for labels, which are -100 at padding on either side, and their loss.

`DataCollatorForSeq2Seq` pads labels on the side of the source, which is the left one for models of
fairseq's translation.
"""

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100  # in labels, where there is no loss


def decoder_inputs(labels: Tensor, start: int, pad: int) -> Tensor:
    """The labels (B, T), one position later, after the start symbol; padding as in the labels."""
    first, before = _first(labels), labels.roll(1, dims=1)
    is_padding = (before == IGNORED) | (first.cumsum(dim=1) == 0)
    return before.masked_fill(is_padding, pad).masked_fill(first, start)


def visible_inputs(inputs: Tensor, labels: Tensor, pad: int, past: int = 0) -> Tensor:
    """(B, past + T), False at padding before the first label.

    inputs: (B, T), of the decoder; past: the tokens of a cache before them, which are no padding
    """
    visible = (_first(labels).cumsum(dim=1) > 0) | (inputs != pad)
    return torch.cat([visible.new_ones(len(inputs), past), visible], dim=1)


def visible_words(inputs: Tensor, start: int, pad: int) -> Tensor | None:
    """(B, T), False at padding before the first token of a row; None if it has to be guessed.

    What `visible_inputs` returns, where labels are not known: Trainer keeps them to itself with
    `label_smoothing_factor`. inputs: (B, T), of the decoder
    """
    if start == pad:
        return None
    real = inputs != pad
    return (real.cumsum(dim=1) > 0) | ~real.any(dim=1, keepdim=True)


def _first(labels: Tensor) -> Tensor:
    """(B, T), True at the first label of a row, or at its first position without labels."""
    real = labels != IGNORED
    return torch.zeros_like(real).scatter(1, real.long().argmax(dim=1, keepdim=True), True)


def cross_entropy(
    logits: Tensor, labels: Tensor | None, count: Tensor | int | None = None
) -> Tensor | None:
    """The mean over all labels but -100, or their sum divided by count; None without labels.

    count: of the labels of all batches whose gradients are accumulated
    """
    if labels is None:
        return None
    reduction = "mean" if count is None else "sum"
    logits, labels = logits.flatten(0, 1).float(), labels.flatten()
    loss = functional.cross_entropy(logits, labels, reduction=reduction)
    return loss if count is None else loss / count
