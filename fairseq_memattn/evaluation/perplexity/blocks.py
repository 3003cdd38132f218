"""The losses of blocks of text, each after context that the model reads again."""

import math
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.evaluation.perplexity.targets import target_scores


@torch.no_grad()
def block_losses(model: Any, batch: dict[str, Any], pad: int) -> tuple[Tensor, Tensor]:
    """The position of each predicted token of a batch, (N,), and its loss in bits, (N,), float64.

    A position is the number of tokens before the token in its block, context included. The losses
    are those of fairseq-eval-lm, which also computes the probabilities of the whole vocabulary for
    the context.

    model: a language model of fairseq, in evaluation mode
    batch: from fairseq's `eval_lm_dataloader`; tokens before `start_indices` of a row are context
    """
    targets = batch["target"]
    starts = targets.new_tensor(batch.get("start_indices", [0] * len(targets)))
    positions = torch.arange(targets.shape[1], device=targets.device)
    counted = targets.ne(pad) & (positions >= starts.unsqueeze(1))
    # fairseq's own transformers require the argument `encoder_out`.
    features, _ = model.extract_features(batch["net_input"]["src_tokens"], encoder_out=None)
    scores = target_scores(model, features[counted], targets[counted]).double()
    return positions.expand_as(counted)[counted], scores / -math.log(2)
