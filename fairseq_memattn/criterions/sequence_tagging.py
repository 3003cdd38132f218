"""Cross entropy over the positions of a sequence, and the percentage of correct sequences."""

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_memattn.criterions import SummedCriterion, sums


@register_criterion("sequence_tagging", dataclass=FairseqDataclass)
class SequenceTaggingCriterion(SummedCriterion):
    """The negative log probability of each position's tag, as a mean over positions.

    The model is called with the sample's `net_input` and returns (logits (B, S, C), extra), where
    C is the size of the task's `target_dictionary`; sample["target"] is (B, S), and its padding
    does not count. Reports, in percent, `accuracy` over positions and `exact_match`, the sequences
    all of whose positions are right (GMAT, table 1). An empty sequence is an exact match.

    The exact match of an encoder-decoder under teacher forcing equals that of greedy search, which
    reads the reference up to its first error.
    """

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        logits, _ = model(**sample["net_input"])
        targets = sample["target"]
        counted = targets.ne(self.padding_idx)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            targets.flatten(),
            ignore_index=self.padding_idx,
            reduction="sum",
        )
        right = logits.argmax(-1).eq(targets)
        sample_size = int(counted.sum())
        logged = {
            "loss": loss.data,
            "ntokens": sample_size,
            "nsentences": len(targets),
            "sample_size": sample_size,
            "ncorrect": (right & counted).sum(),
            "nexact": (right | ~counted).all(1).sum(),
        }
        return loss, sample_size, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Logs the loss in base 2, as fairseq's criterions do, and both metrics."""
        names = ("loss", "ntokens", "nsentences", "ncorrect", "nexact")
        loss, tokens, sentences, correct, exact = sums(logging_outputs, names)
        if not tokens:  # a process without a batch of its own
            return
        metrics.log_scalar("loss", loss / tokens / math.log(2), tokens, round=3)
        metrics.log_scalar("accuracy", 100 * correct / tokens, tokens, round=2)
        metrics.log_scalar("exact_match", 100 * exact / sentences, sentences, round=2)
