"""Options that change what a model's weights compute, where other values fit the same weights."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairseq_memattn.errors import MemAttnError, flag

GO_ON = "MEMATTN_OTHER_OPTIONS"  # an environment variable; 1: another value is no error

# MEANING: the options that change what a model's weights compute. FREE: those of them that change
# training alone, or nothing.
MEANING = re.compile(
    r"^(abc|gmat|t5|t5mem|no|scale|adaptive|tie)_|attention_heads$|activation_fn$|_before$|_pos$"
)
FREE = re.compile(
    r"dropout|initial|^no_(progress|save|epoch|last|seed)|_(init|draw)$|transfer|^abc_(control|stream)$"
)
# A model may be trained further with other values of these, which is how it gets a longer
# context, a memory or updates of low rank.
FURTHER = {"abc_low_rank", "abc_document_gate", "abc_max_length", "gmat_chunk"}
FURTHER |= {"gmat_memory", "gmat_compress_after", "gmat_memory_layers", "gmat_memory_positions"}
FURTHER |= {"gmat_positions"}  # the first N positions stay as they are
FURTHER |= {"t5mem_sequences", "t5mem_slots", "gmat_lsh_buckets"}
# Of a task, whose values a training keeps while it lasts.
TASK = (
    *("source_context", "target_context", "context_separator", "stream"),
    *("source_token", "target_token"),
)
# On which the batches of an epoch depend, whose number a checkpoint within an epoch holds.
BATCHES = ("max_tokens", "batch_size", "required_batch_size_multiple", "train_subset")
BLOCKS = ("tokens_per_sample", "sample_break_mode")


def differences(before: Any, now: Any) -> Iterator[tuple[str, str, str]]:
    """The options whose values differ between two models, and both values.

    before, now: options of models, as mappings; an option that one lacks is left out
    """
    meaning = re.compile(f"{MEANING.pattern}|^max_.*positions$") if _by_length(now) else MEANING
    for option in now:
        if option in before and meaning.search(option) and not FREE.search(option):
            first, second = _plain(before[option]), _plain(now[option])
            if first != second and str(first) != str(second):
                yield option, str(first), str(second)


def _by_length(options: Any) -> bool:
    """Whether the maximum of positions says which tokens share a slot."""
    given = "abc_max_length" if "compressive" in _architecture(options) else "abc_stride"
    is_listed = given == "abc_stride" and options.get("abc_global_positions")
    return (
        re.search("compressive|global", _architecture(options)) is not None
        and str(options.get(given)) == "0"
        and not is_listed
    )


def _plain(value: Any) -> Any:
    """A value without its kind of list or of choice, which a file and a command line differ in."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return list(value) if is_list else getattr(value, "value", value)


def _architecture(options: Any) -> str:
    return str(options.get("_name") or options.get("arch"))


def check_trained_options(path: str, state: Mapping[str, Any], trainer: Any, further: bool) -> None:
    """Compares the options of a training with those of the checkpoint that it begins with.

    state: the checkpoint
    further: whether a new training begins with the weights, and none is resumed

    Raises MemAttnError for options that change what the weights mean, unless GO_ON is set.
    """
    saved, cfg = state.get("cfg") or {}, trainer.cfg
    before, now = part(saved.get("model")), part(cfg.model)
    if not before or os.environ.get(GO_ON) == "1":
        return
    found = [one for one in differences(before, now) if not (further and one[0] in FURTHER)]
    weights = {name for name, _ in trainer.get_model().named_parameters()}
    if weights <= set(state["model"]) and not _same_kind(_architecture(before), _architecture(now)):
        found.insert(0, ("arch", _architecture(before), _architecture(now)))
    if not further:
        found += _of_resumed(saved, state, cfg)
    if found:
        given = " and ".join(f"{flag(name)} {now}" for name, _, now in found)
        trained = " and ".join(str(value) for _, value, _ in found)
        another = "" if further else "give a new training another --save-dir, or "
        raise MemAttnError(
            f"the training has {given}, but {path} was trained with {trained}, so that it would "
            f"not go on as it was; {another}set {GO_ON}=1 to train all the same"
        )


def _of_resumed(
    saved: Mapping[str, Any], state: Mapping[str, Any], cfg: Any
) -> Iterator[tuple[str, Any, Any]]:
    """Other options of a training that goes on where the checkpoint was saved."""
    in_epoch = state["extra_state"]["train_iterator"].get("iterations_in_epoch", 0)
    compared = {"task": TASK, "lr_scheduler": ("_name",)}
    if in_epoch and not cfg.checkpoint.reset_dataloader:
        compared |= {"task": TASK + BLOCKS, "dataset": BATCHES, "common": ("seed",)}
    for name, options in compared.items():
        before, now = part(saved.get(name)), part(cfg[name])
        for option in options:
            if option in before and option in now and before[option] != now[option]:
                yield name if option == "_name" else option, before[option], now[option]


def _same_kind(before: str, now: str) -> bool:
    """Whether a model is made to begin with the weights of another."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    old, new = ARCH_MODEL_REGISTRY.get(before), ARCH_MODEL_REGISTRY[now]
    return old is None or issubclass(new, old) or hasattr(new, "starts_from")


def part(options: Any) -> Mapping[str, Any]:
    """A part of a configuration, which may be a namespace."""
    if options is None or isinstance(options, str):
        return {}
    return options if isinstance(options, Mapping) else vars(options)
