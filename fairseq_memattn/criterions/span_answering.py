"""The loss of the first and last token of an answer, and of the tokens of supporting facts."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_memattn.criterions import SummedCriterion, sums
from fairseq_memattn.data.questions.spans import NO_TAG
from fairseq_memattn.errors import MemAttnError

LOSSES = ("loss", "span_loss", "fact_loss")


@register_criterion("span_answering", dataclass=FairseqDataclass)
class SpanAnsweringCriterion(SummedCriterion):
    """The mean cross entropy of the first and the last token of the answer, per window.

    In windows without the answer, both are <s>. For a model with four scores a token, the loss of
    the tags is added (GMAT, appendix A.3). Reports `exact`, the percentage of windows in which both
    tokens are right.
    """

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        if sample["target"] is None:
            raise MemAttnError("the answers of this split are not public, so it has no loss")
        scores, _ = model(**sample["net_input"])
        ends = span_scores(scores, sample["candidates"])
        loss = F.cross_entropy(ends, sample["target"], reduction="sum") / 2
        parts = {}
        if scores.shape[2] > 2:
            facts = tag_loss(scores[..., 2:], sample["tags"])
            parts = {"span_loss": loss.data, "fact_loss": facts.data}
            loss = loss + facts
        windows = len(ends)
        logged = {
            "loss": loss.data,
            "nexact": ends.argmax(1).eq(sample["target"]).all(1).sum(),
            "nsentences": windows,
            "ntokens": sample["ntokens"],
            "sample_size": windows,
            **parts,
        }
        return loss, windows, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Logs the losses in base 2, as fairseq's criterions do."""
        windows, right = sums(logging_outputs, ("sample_size", "nexact"))
        if not windows:  # a process without a batch of its own
            return
        names = [name for name in LOSSES if name in logging_outputs[0]]
        for name, total in zip(names, sums(logging_outputs, names), strict=True):
            metrics.log_scalar(name, total / windows / math.log(2), windows, round=3)
        metrics.log_scalar("exact", 100 * right / windows, windows, round=2)


def span_scores(scores: Tensor, candidates: Tensor) -> Tensor:
    """(B, S, 2 or more) scores of first and last token to (B, S, 2), -inf elsewhere; fp32.

    candidates: (B, S) True where an answer may begin or end
    """
    return scores[..., :2].float().masked_fill(~candidates.unsqueeze(2), -math.inf)


def tag_loss(scores: Tensor, tags: Tensor) -> Tensor:
    """The sum over B inputs of their negative log-probability of the right tags.

    In each input both classes have the same weight: the loss is the mean of the means of the
    classes that occur (choice: the paper weights "according to the class size" without a formula).

    scores: (B, S, 2); tags: (B, S) of 0 and 1, and NO_TAG, which does not count
    """
    losses = F.cross_entropy(
        scores.float().transpose(1, 2), tags, ignore_index=NO_TAG, reduction="none"
    )
    classes = torch.stack([tags.eq(0), tags.eq(1)])
    sizes = classes.sum(2)
    means = (classes * losses).sum(2) / sizes.clamp(min=1)
    return (means.sum(0) / sizes.gt(0).sum(0)).sum()
