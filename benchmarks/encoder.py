"""Time and memory of encoder inference against softmax attention (ABC paper, Table 4).

The sizes are those of RoBERTa-base, batch 16 and 512 tokens, with random weights. There are three
levels, and each includes the previous one:

    attention   q, k and v are given, and x, from which ABC-MLP computes its control vectors
    module      from x to x: projections, attention, output projection
    encoder     all layers, with their feed-forward layers, and embeddings

The contenders:

    sdpa          torch's scaled_dot_product_attention, which does not store the T x T weights.
                  fairseq's attention module calls it
    explicit      softmax(Q K^T) V with stored weights. At the level `module` it is fairseq's code
                  without scaled_dot_product_attention, which did not exist at the time of the paper
    abc_shared    ABC-MLP, n slots, one control for all heads (--abc-phi-heads shared)
    abc_separate  ABC-MLP, n slots, a control for each head

The contenders take turns, and the times are medians over rounds. The memory is the peak on top of
inputs and weights, outputs included.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import (
    MIB,
    add_common_options,
    add_round_options,
    make_panels,
    make_parser,
    parse,
    peak_bytes,
    start_report,
    take_turns,
    write_report,
)
from fairseq.modules import MultiheadAttention
from models import add_model_options, build_model, make_dictionary, random_words
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.controls import Control, Sizes, Tokens, make_control
from fairseq_memattn.attention.nn.control_pool import ForwardScope, LayerControl
from fairseq_memattn.modules.abc_attention import ABCAttention

Work = dict[str, Callable[[], object]]
BASELINES = ("sdpa", "explicit")


def explicit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q * q.shape[-1] ** -0.5 @ k.transpose(2, 3)).softmax(dim=-1) @ v


def make_explicit(module: nn.Module) -> nn.Module:
    """Makes fairseq's attention modules use their own code instead of torch's function."""
    for part in module.modules():
        if isinstance(part, MultiheadAttention):
            part.skip_embed_dim_check = True
    return module


def make_input(args: Namespace) -> Tensor:
    """x (T, B, E), the layout of fairseq's layers."""
    return torch.randn(args.length, args.batch, args.width, device=args.device)


def make_controls(args: Namespace, slots: int) -> dict[str, Control]:
    sizes = {"abc_shared": 1, "abc_separate": args.heads}
    return {
        name: make_control("mlp", Sizes(args.width, slots, heads)).to(args.device)
        for name, heads in sizes.items()
    }


def attention_level(args: Namespace, slots: int) -> Work:
    x, *inputs = (make_input(args) for _ in range(4))
    # (B, H, T, D) as views of projections, as in a module
    q, k, v = (y.unflatten(2, (args.heads, -1)).permute(1, 2, 0, 3) for y in inputs)
    work: Work = {
        "sdpa": lambda: scaled_dot_product_attention(q, k, v),
        "explicit": lambda: explicit_attention(q, k, v),
    }
    for name, control in make_controls(args, slots).items():
        work[name] = partial(control.attend, q, k, v, Tokens(x.transpose(0, 1)), causal=False)
    return work


def module_level(args: Namespace, slots: int) -> Work:
    x = make_input(args)
    softmax = [
        MultiheadAttention(args.width, args.heads, self_attention=True).to(args.device)
        for _ in BASELINES
    ]
    modules: dict[str, nn.Module] = {"sdpa": softmax[0], "explicit": make_explicit(softmax[1])}
    for name, control in make_controls(args, slots).items():
        layer_control = LayerControl(control, 0, ForwardScope())
        attention = ABCAttention(args.width, args.heads, layer_control, causal=False)
        modules[name] = attention.to(args.device)
    return {
        name: partial(module.eval(), x, x, x, need_weights=False)
        for name, module in modules.items()
    }


def encoder_level(args: Namespace, slots: int) -> Work:
    dictionary = make_dictionary(args.vocabulary)
    words = random_words(dictionary, args, args.batch, args.length)
    lengths = torch.full((args.batch,), args.length, device=args.device)

    def build(architecture: str, **options: Any) -> nn.Module:
        options |= {"activation_fn": "gelu", "decoder_layers": 1}
        model = build_model(architecture, args, dictionary, args.length + 2, **options)
        return model.encoder.eval()

    encoders = {"sdpa": build("transformer"), "explicit": make_explicit(build("transformer"))}
    for sharing in ("shared", "separate"):
        options = {"abc_encoder_slots": slots, "abc_phi_heads": sharing}
        encoders[f"abc_{sharing}"] = build("abc_mlp_transformer", **options)
    return {name: partial(encoder, words, lengths) for name, encoder in encoders.items()}


LEVELS = {"attention": attention_level, "module": module_level, "encoder": encoder_level}


def measure(args: Namespace, level: str, slots: int) -> dict[str, Any]:
    torch.manual_seed(0)
    work = LEVELS[level](args, slots)
    peak = {name: peak_bytes(args, once) for name, once in work.items()}
    taken = {name: statistics.median(times) for name, times in take_turns(args, work).items()}
    row: dict[str, Any] = {"level": level, "slots": slots, "seconds": taken, "peak_bytes": peak}
    for baseline in BASELINES:
        row[f"speed_over_{baseline}"] = {n: taken[baseline] / t for n, t in taken.items()}
        row[f"memory_over_{baseline}"] = {n: size / peak[baseline] for n, size in peak.items()}
    return row


def describe(row: dict[str, Any]) -> str:
    lines = [f"{row['level']}, {row['slots']} slots"]
    for name, time in row["seconds"].items():
        speeds, sizes = (
            [row[f"{what}_over_{baseline}"][name] for baseline in BASELINES]
            for what in ("speed", "memory")
        )
        lines.append(
            f"  {name:>12} {1e3 * time:9.1f} ms {row['peak_bytes'][name] / MIB:8.1f} MiB"
            f"  |  over sdpa: speed {speeds[0]:.2f}, memory {sizes[0]:.2f}"
            f"  |  over explicit: speed {speeds[1]:.2f}, memory {sizes[1]:.2f}"
        )
    return "\n".join(lines)


def plot(report: dict[str, Any], path: Path) -> None:
    """Plots speed and memory relative to sdpa by level, for the first number of slots."""
    rows = [row for row in report["rows"] if row["slots"] == report["setting"]["slots"][0]]
    names = list(rows[0]["seconds"])
    figure, panels = make_panels(2)
    for axes, key, title in zip(
        panels,
        ("speed_over_sdpa", "memory_over_sdpa"),
        ("speed (higher is better)", "peak memory (lower is better)"),
        strict=True,
    ):
        for number, name in enumerate(names):
            places = [level + 0.2 * number for level in range(len(rows))]
            axes.bar(places, [row[key][name] for row in rows], width=0.18, label=name)
        axes.set_xticks([level + 0.3 for level in range(len(rows))], [r["level"] for r in rows])
        axes.set(title=title, ylabel="times that of sdpa")
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.grid(axis="y", alpha=0.3)
        axes.legend()
    panels[1].set_yscale("log")
    setting = "B={batch} T={length} E={width} H={heads}".format(**report["setting"])
    machine = "{processor}, {threads} threads".format(**report)
    figure.suptitle(f"{setting} n={rows[0]['slots']}, {machine}")
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--slots", type=int, nargs="+", default=[64], help="n (%(default)s)")
    add("--levels", nargs="+", choices=LEVELS, default=list(LEVELS), help="(%(default)s)")
    add("--length", type=int, default=512, help="T (%(default)s)")
    add("--batch", type=int, default=16, help="B (%(default)s)")
    add_round_options(parser, repeats=5, warmup=1)
    add_model_options(parser)
    add_common_options(parser, "encoder")
    parser.set_defaults(layers=12, width=768, ffn=3072, heads=12)
    return parse(parser)


@torch.no_grad()
def main() -> None:
    args = parse_arguments()
    report = start_report(args)
    report["rows"] = []
    for slots in args.slots:
        for level in args.levels:
            report["rows"].append(measure(args, level, slots))
            print(describe(report["rows"][-1]), flush=True)
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
