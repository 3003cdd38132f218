"""A decoding step through onnxruntime against the same step in PyTorch, at growing lengths.

The contenders are encoder-decoders of the same sizes with random weights, one row at a time:

    onnx, abc           abc_mlp_transformer: memory slots in cross and causal attention
    torch, abc          the same model in PyTorch
    onnx, softmax       fairseq's transformer, with its cache of keys and values
    torch, softmax      the same model in PyTorch

A step at length t reads a state after t - 1 tokens, for a source of t tokens, both random.
"""

import statistics
import tempfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from common import (
    add_common_options,
    add_round_options,
    make_panels,
    make_parser,
    over_lengths,
    parse,
    start_report,
    take_turns,
    write_report,
)
from torch import Tensor

from fairseq_memattn.onnx.onnx_decoder import OnnxDecoder
from fairseq_memattn.onnx.onnx_export import start_states, step_names, write_onnx
from fairseq_memattn.onnx.step_graphs import StepGraph
from fairseq_memattn.transformers import (
    BoundedTransformerConfig,
    BoundedTransformerForConditionalGeneration,
)
from fairseq_memattn.transformers.transformer_config import ControlConfig, StackConfig

Step = Callable[[], object]


def build(args: Namespace, control: str) -> BoundedTransformerForConditionalGeneration:
    sizes: dict[str, Any] = {
        "vocab_size": args.vocabulary,
        "layers": args.layers,
        "embed_dim": args.width,
        "ffn_dim": args.ffn,
        "heads": args.heads,
        "input_dim": args.width,
        "output_dim": args.width,
        "max_positions": max(args.lengths),
    }
    made = None if control == "softmax" else ControlConfig("mlp", args.slots, args.heads)
    config = BoundedTransformerConfig(
        encoder_stack=asdict(StackConfig(**sizes)),
        decoder_stack=asdict(StackConfig(**sizes, source_dim=args.width, causal=made, cross=made)),
        is_encoder_decoder=True,
        decoder_start_token_id=2,
    )
    return BoundedTransformerForConditionalGeneration(config).eval()


def filled(states: list[Tensor]) -> list[Tensor]:
    """Random numbers, which do not change the time of a step; all of a source is visible."""
    return [torch.randn_like(x) if x.is_floating_point() else torch.ones_like(x) for x in states]


def torch_step(graph: StepGraph, length: int, states: list[Tensor]) -> Step:
    token, read = torch.full((1, 1), 5), torch.full((1,), length - 1)

    @torch.inference_mode()
    def step() -> object:
        return graph(token, read, states)

    return step


def onnx_step(decoder: OnnxDecoder, graph: StepGraph, length: int, states: list[Tensor]) -> Step:
    token, read = torch.full((1,), 5).numpy(), torch.full((1,), length - 1).numpy()
    names = step_names(graph.parts)[0][2:]
    state = {"read": read} | {x: y.numpy() for x, y in zip(names, states, strict=True)}
    return lambda: decoder.step(state, token)


def measure(args: Namespace) -> list[dict[str, Any]]:
    steps: dict[int, dict[str, Step]] = {length: {} for length in args.lengths}
    sizes: dict[int, dict[str, int]] = {length: {} for length in args.lengths}
    for control in ("abc", "softmax"):
        model = build(args, control)
        graph = StepGraph(model)
        with tempfile.TemporaryDirectory() as folder:
            write_onnx(model, Path(folder))
            decoder = OnnxDecoder(folder, args.threads)
        for length in args.lengths:
            states = filled(
                start_states(graph.parts, {"batch": 1, "source": length, "past": length - 1})
            )
            steps[length][f"onnx, {control}"] = onnx_step(decoder, graph, length, states)
            steps[length][f"torch, {control}"] = torch_step(graph, length, states)
            sizes[length][control] = sum(x.nbytes for x in states)
    every = {(length, name): step for length in steps for name, step in steps[length].items()}
    medians = {key: statistics.median(times) for key, times in take_turns(args, every).items()}
    rows = []
    for length, contenders in steps.items():
        of_length = {name: medians[length, name] for name in contenders}
        shown = ", ".join(f"{name} {1e3 * time:.2f} ms" for name, time in of_length.items())
        print(f"length {length}: {shown}", flush=True)
        rows.append({"length": length, "seconds_per_step": of_length, "state_bytes": sizes[length]})
    return rows


def plot(report: dict[str, Any], path: Path) -> None:
    figure, (axes,) = make_panels(1)
    lengths = [row["length"] for row in report["steps"]]
    for name in report["steps"][0]["seconds_per_step"]:
        times = [1e3 * row["seconds_per_step"][name] for row in report["steps"]]
        axes.plot(lengths, times, marker="o", label=name)
    over_lengths(axes, lengths, yscale="log", ylabel="ms", title="one step")
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    lengths = [128, 512, 1024, 2048, 4096]
    add("--lengths", type=int, nargs="+", default=lengths, help="at least 2 (%(default)s)")
    add("--layers", type=int, default=6, help="of the encoder and of the decoder (%(default)s)")
    add("--width", type=int, default=512, help="E (%(default)s)")
    add("--ffn", type=int, default=2048, help="width of the feed-forward layers (%(default)s)")
    add("--heads", type=int, default=8, help="H (%(default)s)")
    add("--vocabulary", type=int, default=1000, help="words of the vocabulary (%(default)s)")
    add("--slots", type=int, default=32, help="M (%(default)s)")
    add_round_options(parser, repeats=50, warmup=5)
    add_common_options(parser, "onnx_decoding")
    parser.set_defaults(device="cpu")
    args = parse(parser)
    if args.device != "cpu":
        parser.error(f"--device must be cpu, where all contenders compute, but is {args.device}")
    return args


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    report = start_report(args)
    report["steps"] = measure(args)
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
