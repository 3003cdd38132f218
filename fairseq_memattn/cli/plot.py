"""`memattn plot`: what is written into the memory of a trained model, and what is read from it."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.models import check_paths, checkpoints
from fairseq_memattn.cli.outputs import check_outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="folder made by fairseq-preprocess")
    parser.add_argument("--path", required=True, help="checkpoint of an ABC translation model")
    parser.add_argument("--subset", default="test", help="default: %(default)s")
    parser.add_argument(
        "--index", type=int, default=0, help="sentence, counted from 0 (default: %(default)s)"
    )
    parser.add_argument(
        "--layer", type=int, default=-1, help="decoder layer, -1 being the last (the default)"
    )
    parser.add_argument(
        "--head",
        type=int,
        default=0,
        help="attention head; each has slots of its own (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, required=True, help="picture to write, a .png")


def run(args: argparse.Namespace) -> None:
    import logging

    import fairseq_memattn

    fairseq_memattn.register()
    # fairseq lets everything through, and matplotlib reports every font it looks at.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    from fairseq_memattn.evaluation.plots import draw_memory

    check_outputs({"--output": args.output}, checkpoints(args.path))
    check_paths(args.data, args.path)
    (model,), _, task = load_model_ensemble_and_task([args.path], arg_overrides={"data": args.data})
    task.load_dataset(args.subset)
    dataset = task.dataset(args.subset)
    if not 0 <= args.index < len(dataset):
        raise ValueError(
            f"--index must be from 0 to {len(dataset) - 1} in {args.subset}, but is {args.index}"
        )
    sample = dataset.collater([dataset[args.index]])
    writing, reading = cross_memory(model, sample, args.layer, args.head)
    source, target = sample["net_input"]["src_tokens"][0], sample["target"][0]
    layer = args.layer % len(model.decoder.layers)
    draw_memory(
        writing,
        reading,
        _symbols(task.source_dictionary, source),
        _symbols(task.target_dictionary, target),
        args.output,
        f"Cross attention's memory: {args.subset} {args.index}, layer {layer}, head {args.head}",
    )
    print(f"drew {args.output}")


def cross_memory(model: Any, sample: dict[str, Any], layer: int, head: int) -> Any:
    """phi (S, M) and p (T, M) of one decoder layer's cross attention for a batch of one.

    Raises ValueError where the model has no such layer, head or memory.
    """
    import torch

    from fairseq_memattn.modules.abc_attention import ABCAttention

    layers = list(model.decoder.layers)
    if not -len(layers) <= layer < len(layers):
        raise ValueError(f"--layer must be below the {len(layers)} layers, but is {layer}")
    attention = layers[layer].encoder_attn
    if not isinstance(attention, ABCAttention):
        raise ValueError("this is no ABC translation model with --abc-cross-slots above 0")
    if not 0 <= head < attention.num_heads:
        raise ValueError(f"--head must be from 0 to {attention.num_heads - 1}, but is {head}")
    seen: dict[str, Any] = {}
    handle = attention.register_forward_pre_hook(
        lambda module, args, kwargs: seen.update(kwargs), with_kwargs=True
    )
    model.eval()
    with torch.no_grad():
        model(**sample["net_input"])
        handle.remove()
        writing, reading = attention.inspect(seen["query"], seen["key"], seen["key_padding_mask"])
    writing = writing.expand(-1, attention.num_heads, -1, -1)
    return writing[0, head], reading[0, head]


def _symbols(dictionary: Any, tokens: Any) -> list[str]:
    return [dictionary[token].replace("\u2581", " ").strip() or "\u2581" for token in tokens]
