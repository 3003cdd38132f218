"""The log-probabilities of given tokens."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F


def target_scores(model: Any, features: Tensor, targets: Tensor) -> Tensor:
    """The log-probability of each target, (N,), a natural logarithm.

    They are those of fairseq's `get_normalized_probs`. With an adaptive softmax this one also
    allocates the probabilities of the whole vocabulary for every token.

    model: a language model of fairseq, in evaluation mode
    features: (N, E), the decoder's last states
    targets: (N,)
    """
    adaptive = getattr(model.decoder, "adaptive_softmax", None)
    if adaptive is None:
        logits = model.decoder.output_layer(features)
        log_probs = model.get_normalized_probs((logits, None), log_probs=True)
        return log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    (head, *tails), (first, *others) = adaptive(features, targets)
    scores = -F.cross_entropy(head.float(), first, reduction="none")
    for number, (logits, target) in enumerate(zip(tails, others, strict=True)):
        if logits is not None:
            of_tail = first.eq(adaptive.cutoff[0] + number)
            scores[of_tail] -= F.cross_entropy(logits.float(), target, reduction="none")
    return scores
