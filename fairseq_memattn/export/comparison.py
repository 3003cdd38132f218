"""Compares the outputs of a model of fairseq and of its counterpart, on the data."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from fairseq_memattn.errors import MemAttnError

BATCH = 4  # examples
SUBSETS = ("valid", "test")
# fairseq's names of inputs -> transformers'; others have the same name in both.
NAMES = {
    "src_tokens": "input_ids",
    "prev_output_tokens": "decoder_input_ids",
    "context_tokens": "context_input_ids",
}
# transformers find padding in the masks of tokens, and fairseq's RoBERTa does not read `src_id`.
LEFT_OUT = ("src_lengths", "context_padding_mask", "src_id")


class Difference(NamedTuple):
    """logits: the largest difference, or NaN if one is; tokens: compared; others: of them with
    another argmax
    """

    logits: float
    tokens: int
    others: int


def compare(
    model: Any, converted: PreTrainedModel, task: Any, subset: str | None, batches: int
) -> Difference:
    """The differences of the logits on some batches of a subset, padding left out.

    model: of fairseq; converted: its counterpart, which gives `logits`
    subset: by default the first of SUBSETS that the data have
    Raises MemAttnError for a subset that the data do not have.
    """
    dataset = load(task, subset)
    model.eval()
    converted.eval()
    largest, tokens, others = torch.zeros(()), 0, 0
    # The first of the examples that the model can read, in their order.
    kept, _ = dataset.filter_indices_by_size(np.arange(len(dataset)), model.max_positions())
    starts = range(0, min(len(kept), batches * BATCH), BATCH)
    with torch.no_grad():
        for start in tqdm(starts, desc="checking", unit="batch", disable=None):
            sample = dataset.collater([dataset[int(i)] for i in kept[start : start + BATCH]])
            first, second, is_token = outputs(model, converted, sample["net_input"], task)
            difference = (first - second).abs()[is_token]
            largest = torch.maximum(largest, difference.max().cpu())  # of NaN it is NaN
            tokens += int(is_token.sum())
            others += int((first.argmax(-1) != second.argmax(-1))[is_token].sum())
    if not tokens:
        raise MemAttnError("--check: the data have no example that the model can read")
    return Difference(largest.item(), tokens, others)


def load(task: Any, subset: str | None) -> Any:
    """A subset of the data."""
    for name in (subset,) if subset else SUBSETS:
        try:
            task.load_dataset(name, combine=False, epoch=1)
        except FileNotFoundError:
            continue
        dataset = task.dataset(name)
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(1)
        return dataset
    wanted = f"subset {subset}" if subset else " and no ".join(SUBSETS)
    raise MemAttnError(f"--check: the data have no {wanted}")


def outputs(
    model: Any, converted: PreTrainedModel, net_input: dict[str, Any], task: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The logits of both models, and where there is no padding."""
    pad = task.source_dictionary.pad()
    read = {NAMES.get(name, name): x for name, x in net_input.items() if name not in LEFT_OUT}
    for name in [name for name in read if name.endswith("input_ids")]:
        read[name.replace("input_ids", "attention_mask")] = read[name].ne(pad).long()
    kept = net_input.get("prev_output_tokens", net_input["src_tokens"]).ne(pad)
    return of_fairseq(model, net_input).float(), logits(converted(**read)).float(), kept


def of_fairseq(model: Any, net_input: dict[str, Any]) -> Any:
    """The logits of a model of fairseq; with an adaptive softmax the log probabilities."""
    found: Any = model(**net_input)
    if getattr(getattr(model, "decoder", None), "adaptive_softmax", None) is not None:
        return model.get_normalized_probs(found, log_probs=True, sample=None)
    return found[0]


def logits(found: Any) -> Any:
    """The logits of an output, those of spans stacked as `SpanHead` stacks them."""
    if not hasattr(found, "start_logits"):
        return found.logits
    spans = torch.stack([found.start_logits, found.end_logits], dim=-1)
    facts = getattr(found, "fact_logits", None)
    return spans if facts is None else torch.cat([spans, facts], dim=-1)
