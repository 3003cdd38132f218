"""Time of T5Mem's cross attention, encoder and decoding step.

The models have random weights and --sequences (K) sequences. There are three parts:

    cross    forward and backward pass of the cross attention to the selector's mixtures, with T = S
             = --length. `factorised` is the package's implementation. `literal` is the paper's
             equations 4 and 5: it computes the mixture of every target token and projects it
    encoder  `t5mem` on K sequences of each of --lengths, against `t5` on one sequence with the same
             number of tokens
    step     a decoding step after --length tokens, with sources as in `encoder`: `t5mem` with its
             selector, against `t5`

The contenders take turns, and the times are medians over rounds. The ratio is the time of `literal`
or `t5` divided by that of `factorised` or `t5mem`: above 1, T5Mem's implementation is faster.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable
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
from decoding_steps import State, copy_state, for_inference, next_words, start_words
from fairseq.data import Dictionary
from models import add_model_options, build_model, make_dictionary, random_words
from torch import Tensor, nn

from fairseq_memattn.attention import mixture_attention

Contenders = dict[str, Callable[[], object]]


def heads_of(args: Namespace, x: Tensor) -> Tensor:
    """(..., S, E) as (..., H, S, D)."""
    return x.unflatten(-1, (args.heads, -1)).transpose(-3, -2)


def factorised(args: Namespace, q: Tensor, states: Tensor, w: Tensor, selection: Tensor) -> Tensor:
    k, v = (heads_of(args, states @ weight) for weight in w)
    return mixture_attention(heads_of(args, q), k, v, selection)


def literal(args: Namespace, q: Tensor, states: Tensor, w: Tensor, selection: Tensor) -> Tensor:
    mixed = torch.einsum("btk,bkse->btse", selection, states)
    k, v = (heads_of(args, mixed @ weight) for weight in w)  # (B, T, H, S, D)
    logits = torch.einsum("bhtd,bthsd->bhts", heads_of(args, q), k)
    return torch.einsum("bhts,bthsd->bhtd", logits.softmax(dim=-1), v)


def cross_part(args: Namespace, length: int) -> Contenders:
    shapes = [
        (args.batch, length, args.width),
        (args.batch, args.sequences, length, args.width),
        (2, args.width, args.width),
        (args.batch, length, args.sequences),
    ]
    q, states, w, selection = (torch.randn(shape, device=args.device) for shape in shapes)
    inputs = [q, states, w * args.width**-0.5, selection.softmax(dim=-1)]
    leaves = [x.requires_grad_() for x in inputs]

    def both_ways(attend: Callable[..., Tensor]) -> object:
        return torch.autograd.grad(attend(args, *leaves).sum(), leaves)

    return {
        "t5mem": lambda: both_ways(factorised),
        "other": lambda: both_ways(literal),
    }


def build(args: Namespace, dictionary: Dictionary) -> dict[str, nn.Module]:
    longest = args.sequences * max(args.lengths)
    models = {
        "t5mem": build_model("t5mem_v3", args, dictionary, longest, t5mem_sequences=args.sequences),
        "other": build_model("t5", args, dictionary, longest),
    }
    return {name: for_inference(model) for name, model in models.items()}


def sources(args: Namespace, dictionary: Dictionary, length: int) -> dict[str, tuple[Tensor, ...]]:
    """The inputs of both encoders: the same words as K sequences, and as one sequence."""
    words = random_words(dictionary, args, args.batch, args.sequences * length)
    parts = words.unflatten(1, (args.sequences, length))
    sizes = torch.full((args.batch,), length, device=args.device)
    return {"t5mem": (parts[:, -1], sizes, parts[:, :-1]), "other": (words, args.sequences * sizes)}


def encoder_part(
    args: Namespace, models: dict[str, nn.Module], dictionary: Dictionary, length: int
) -> Contenders:
    inputs = sources(args, dictionary, length)
    return {
        name: lambda model=model, name=name: model.encoder(*inputs[name])
        for name, model in models.items()
    }


def step_part(
    args: Namespace, models: dict[str, nn.Module], dictionary: Dictionary, length: int
) -> Contenders:
    words = start_words(dictionary, args, args.length)
    contenders: Contenders = {}
    for name, source in sources(args, dictionary, length).items():
        model, state = models[name], State()
        encoded = model.encoder(*source)
        for t in range(1, args.length + 1):
            next_words(model, words[:, :t], encoded, state)
        work = (model, words, encoded, state)
        contenders[name] = lambda work=work: repeat_step(args, *work)
    return contenders


def repeat_step(args: Namespace, model: nn.Module, words: Tensor, encoded: Any, state: Any) -> None:
    for _ in range(args.steps):
        next_words(model, words, encoded, copy_state(state))


def measure(args: Namespace, part: str, length: int, contenders: Contenders) -> dict[str, Any]:
    taken = {name: statistics.median(times) for name, times in take_turns(args, contenders).items()}
    ratio = taken["other"] / taken["t5mem"]
    times = {name: f"{1e3 * time:.1f} ms" for name, time in taken.items()}
    print(f"{part:>8} {length:>6}  {OTHERS[part]} {times['other']}, ", end="")
    print(f"{OWN[part]} {times['t5mem']}, ratio {ratio:.2f}", flush=True)
    return {"part": part, "length": length, "seconds": taken, "ratio": ratio}


OWN = {"cross": "factorised", "encoder": "t5mem", "step": "t5mem"}
OTHERS = {"cross": "literal", "encoder": "t5", "step": "t5"}


def plot(report: dict[str, Any], path: Path) -> None:
    figure, panels = make_panels(len(OWN))
    for axes, part in zip(panels, OWN, strict=True):
        rows = [row for row in report["rows"] if row["part"] == part]
        lengths = [row["length"] for row in rows]
        for name, label in (("other", OTHERS[part]), ("t5mem", OWN[part])):
            times = [1e3 * row["seconds"][name] for row in rows]
            axes.plot(lengths, times, marker="o", label=label)
        over_lengths(axes, lengths, yscale="log", ylabel="ms", title=part)
    setting = "{sequences} sequences, B={batch} E={width} H={heads}, {layers} layers a side"
    figure.suptitle(setting.format(**report["setting"]))
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    lengths = [128, 256, 512, 1024]
    add("--sequences", type=int, default=4, help="K (%(default)s)")
    add("--lengths", type=int, nargs="+", default=lengths, help="of a sequence (%(default)s)")
    add("--length", type=int, default=100, help="of cross's target and source (%(default)s)")
    add("--batch", type=int, default=4, help="B (%(default)s)")
    add("--steps", type=int, default=10, help="steps timed as one in part step (%(default)s)")
    add_round_options(parser, repeats=7, warmup=2)
    add_model_options(parser)
    add_common_options(parser, "t5mem")
    parser.set_defaults(layers=2)
    return parse(parser)


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    report = start_report(args)
    report["rows"] = [measure(args, "cross", args.length, cross_part(args, args.length))]
    dictionary = make_dictionary(args.vocabulary)
    with torch.no_grad():
        models = build(args, dictionary)
        for part, make in (("encoder", encoder_part), ("step", step_part)):
            for length in args.lengths:
                contenders = make(args, models, dictionary, length)
                report["rows"].append(measure(args, part, length, contenders))
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
