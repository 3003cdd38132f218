"""Blocks of text behind context that is read again: only what counts is looked up."""

import math
from typing import Any

import torch
from fairseq.models import FairseqLanguageModel


@torch.no_grad()
def block_loss(model: FairseqLanguageModel, batch: dict[str, Any], pad: int) -> tuple[float, int]:
    """The summed loss of a batch, base 2, and how many tokens it is of.

    model: in evaluation mode; batch: as fairseq's `eval_lm_dataloader` makes it, in which a row
    counts from its `start_indices` on. fairseq-eval-lm has the same losses, but computes the
    probabilities of the whole vocabulary for the context, too.
    """
    wanted = batch["target"]
    starts = wanted.new_tensor(batch.get("start_indices", [0] * len(wanted)))
    positions = torch.arange(wanted.shape[1], device=wanted.device)
    counted = wanted.ne(pad) & (positions >= starts.unsqueeze(1))
    # fairseq's own transformers want to be told that there is no encoder.
    features, _ = model.extract_features(batch["net_input"]["src_tokens"], encoder_out=None)
    # Of one row, as fairseq's adaptive softmax wants it.
    output = (model.decoder.output_layer(features[counted].unsqueeze(0)), None)
    wanted = wanted[counted].unsqueeze(0)
    log_probs = model.get_normalized_probs(output, log_probs=True, sample={"target": wanted})
    scores = log_probs.gather(2, wanted.unsqueeze(2)).double()
    return -float(scores.sum()) / math.log(2), wanted.numel()
