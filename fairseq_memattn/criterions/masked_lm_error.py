"""Masked language modelling with the GMAT paper's measures, error and perplexity (section 4)."""

import math
from collections.abc import Sequence
from typing import Any

from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.modules import cross_entropy
from torch import Tensor, nn

from fairseq_memattn.criterions import SummedCriterion, sums


@register_criterion("masked_lm_error", dataclass=FairseqDataclass)
class MaskedLmErrorCriterion(SummedCriterion):
    """The loss of fairseq's `masked_lm`, and the percentage of masked tokens predicted wrongly.

    The model is called with the sample's `net_input` and `masked_tokens` (B, S), and returns
    (logits (masked, C), extra). `error` is in percent; `ppl` is the inverse of the geometric mean
    of the masked tokens' probabilities. A batch without masked tokens does not count.
    """

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        masked = sample["target"].ne(self.padding_idx)
        logits, _ = model(**sample["net_input"], masked_tokens=masked)
        targets = sample["target"][masked]
        loss = cross_entropy(logits, targets, reduction="sum", ignore_index=self.padding_idx)
        logged = {
            "loss": loss.data,
            "nwrong": logits.argmax(-1).ne(targets).sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": len(targets),
        }
        return loss, len(targets), logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Logs the loss in base 2, as fairseq's criterions do, perplexity and error."""
        loss, wrong, masked = sums(logging_outputs, ("loss", "nwrong", "sample_size"))
        if not masked:  # a process without a batch of its own
            return
        metrics.log_scalar("loss", loss / masked / math.log(2), masked, round=3)
        metrics.log_scalar("error", 100 * wrong / masked, masked, round=2)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
