"""Greedy incremental decoding: time of a step, speed, and size of the decoding state.

The contenders have the same sizes, random weights and the same source:

    abc       abc_mlp_transformer, whose cross and causal attention have a few memory slots
    softmax   fairseq's transformer, with its cache of keys and values

The source is as long as the target, unless --source-length is given, and is encoded once. Special
symbols are never chosen, so the target always has the requested length.

1. One step at length t. The memory of `abc` is filled by decoding t - 1 tokens. The cache of
   `softmax` is filled with random keys and values, which takes no time and does not change the time
   of a step. The contenders take turns to repeat the step from this state.
2. Whole sentences, with the encoder. `abc` decodes all steps. The time per step of `softmax` grows
   linearly. It is measured as in 1 in the middle of each of --parts equal parts, and multiplied by
   the steps of the part. With --whole, `softmax` decodes all steps as well, and the report also has
   the estimate.

--generator also measures fairseq's SequenceGenerator, with --beam hypotheses a sentence. The
contenders take turns.
"""

import statistics
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from common import (
    MIB,
    add_common_options,
    make_panels,
    make_parser,
    over_lengths,
    parse,
    seconds,
    start_report,
    write_report,
)
from decoding_steps import (
    Encoded,
    State,
    Step,
    fill_caches,
    for_inference,
    next_words,
    random_states,
    start_words,
    state_bytes,
)
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from fairseq.sequence_generator import SequenceGenerator
from models import (
    ARCHITECTURES,
    abc_and_softmax,
    add_model_options,
    add_slot_options,
    build_contenders,
    make_dictionary,
    random_words,
)
from torch import Tensor, nn

Models = dict[str, nn.Module]


def encode(model: nn.Module, source: Tensor) -> Encoded:
    return model.encoder(source, src_lengths=source_lengths(source))


def source_lengths(source: Tensor) -> Tensor:
    return torch.full((len(source),), source.shape[1], device=source.device)


def random_source(args: Namespace, dictionary: Dictionary, length: int) -> Tensor:
    return random_words(dictionary, args, args.batch, args.source_length or length)


def decode(
    model: nn.Module, encoded: Encoded, state: State, words: Tensor, first: int, last: int
) -> None:
    """Decodes the words from `first` to `last` into words (B, length + 1); word 0 is given."""
    for t in range(first, last + 1):
        words[:, t] = next_words(model, words[:, :t], encoded, state)


def make_step(model: nn.Module, encoded: Encoded, words: Tensor) -> Step:
    """The step after `words` (B, t), with the state after t - 1 of them."""
    state: State = {}
    if isinstance(model.decoder.layers[0].self_attn, MultiheadAttention):
        next_words(model, words[:, :1], encoded, state)
        fill_caches(model, words, state)
    else:
        decode(model, encoded, state, words.clone(), 1, words.shape[1] - 1)
    return Step(model, encoded, words, state)


def measure_steps(args: Namespace, models: Models, dictionary: Dictionary) -> list[dict[str, Any]]:
    """Part 1. All lengths take turns, so that other programs affect them equally."""
    steps: dict[int, dict[str, Step]] = {}
    for length in args.lengths:
        print(f"length {length}: filling memories and caches", flush=True)
        words = start_words(dictionary, args, length - 1)
        encoded = random_states(args, args.source_length or length)
        steps[length] = {name: make_step(model, encoded, words) for name, model in models.items()}
    for round_ in range(args.repeats):
        print(f"round {round_ + 1} of {args.repeats}", flush=True)
        for contenders in steps.values():
            contenders["abc"].run(args, 5)
            contenders["softmax"].run(args, 1)
    return [
        {
            "length": length,
            "seconds_per_step": {name: step.median() for name, step in contenders.items()},
            "fastest_step": {name: min(step.taken) for name, step in contenders.items()},
            "state_bytes": {name: state_bytes(step.state) for name, step in contenders.items()},
        }
        for length, contenders in steps.items()
    ]


def measure_sentences(
    args: Namespace, models: Models, dictionary: Dictionary, length: int
) -> dict[str, Any]:
    """Part 2, at one length. The contenders take turns, part by part."""
    torch.manual_seed(0)
    source = random_source(args, dictionary, length)
    words = {name: start_words(dictionary, args, length) for name in models}
    encoded = {name: encode(model, source) for name, model in models.items()}  # warms up
    encoding = {
        name: seconds(args, lambda model=model: encode(model, source))
        for name, model in models.items()
    }
    states: dict[str, State] = {name: {} for name in models}
    decoding = dict.fromkeys(models if args.whole else ["abc"], 0.0)
    estimate = 0.0
    ends = [round(part * length / args.parts) for part in range(args.parts + 1)]
    for first, last in pairwise(ends):
        for name in decoding:
            work = (models[name], encoded[name], states[name], words[name], first + 1, last)
            decoding[name] += seconds(args, lambda work=work: decode(*work))
        middle = words["softmax"][:, : (first + last + 1) // 2]
        step = make_step(models["softmax"], encoded["softmax"], middle)
        step.run(args, 3)
        estimate += step.median() * (last - first)
        print(f"decoding {last} of {length} words", flush=True)
    decoding = {"softmax": estimate} | decoding
    speed = {name: args.batch * length / (encoding[name] + decoding[name]) for name in models}
    return {
        "length": length,
        "seconds_encoding": encoding,
        "seconds_decoding": decoding,
        "seconds_decoding_softmax_estimated": estimate,
        "tokens_per_second": speed,
        "ratio": speed["abc"] / speed["softmax"],
        "ratio_of_decoders": decoding["softmax"] / decoding["abc"],
    }


def measure_generator(
    args: Namespace, models: Models, dictionary: Dictionary, length: int
) -> dict[str, Any]:
    source = random_source(args, dictionary, length)
    sample = {"net_input": {"src_tokens": source, "src_lengths": source_lengths(source)}}
    generators = {
        name: SequenceGenerator(
            [model],
            dictionary,
            beam_size=args.beam,
            max_len_a=0,
            max_len_b=length,
            min_len=length,
            max_len=length + 1,
        )
        for name, model in models.items()
    }
    rounds: dict[str, list[float]] = {name: [] for name in models}
    for round_ in range(args.generator_rounds):
        for name, generator in generators.items():
            work = (generator, sample)
            time = seconds(args, lambda work=work: work[0].generate([], work[1]))
            rounds[name].append(time)
            print(
                f"SequenceGenerator, length {length}, round {round_ + 1} of "
                f"{args.generator_rounds}: {name} {time:.1f} s",
                flush=True,
            )
    taken = {name: statistics.median(times) for name, times in rounds.items()}
    speed = {name: args.batch * length / time for name, time in taken.items()}
    return {
        "length": length,
        "seconds_rounds": rounds,
        "tokens_per_second": speed,
        "ratio": speed["abc"] / speed["softmax"],
    }


def plot(report: dict[str, Any], path: Path) -> None:
    """Plots time per step, state and speed against length. Panels without rows are left out."""
    panels = [
        ("steps", "seconds_per_step", 1e3, "ms", "one step"),
        ("steps", "state_bytes", 1 / MIB, "MiB", "decoding state"),
        ("sentences", "tokens_per_second", 1, "tokens a second", "whole sentences, with encoder"),
        ("generator", "tokens_per_second", 1, "tokens a second", "SequenceGenerator"),
    ]
    panels = [panel for panel in panels if report[panel[0]]]
    figure, grid = make_panels(len(panels))
    for axes, (part, key, unit, label, title) in zip(grid, panels, strict=True):
        lengths = [row["length"] for row in report[part]]
        for name in report[part][0][key]:
            values = [unit * row[key][name] for row in report[part]]
            axes.plot(lengths, values, marker="o", label=ARCHITECTURES[name])
        over_lengths(axes, lengths, yscale="log", ylabel=label, title=title)
    figure.suptitle("batch {batch}, greedy, {layers} layers of {width}".format(**report["setting"]))
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    lengths = {"type": int, "nargs": "*"}
    steps = [128, 256, 512, 1024, 2048, 4096]
    add("--lengths", default=steps, help="of part 1, at least 2 (%(default)s)", **lengths)
    add("--sentences", default=[1024, 2048], help="lengths of part 2 (%(default)s)", **lengths)
    add("--generator", default=[], help="lengths for SequenceGenerator (%(default)s)", **lengths)
    add("--generator-rounds", type=int, default=2, help="turns of each contender (%(default)s)")
    add("--beam", type=int, default=1, help="of SequenceGenerator (%(default)s)")
    add("--source-length", type=int, help="of the source; as long as the target unless given")
    add("--batch", type=int, default=16, help="sentences (%(default)s)")
    add("--repeats", type=int, default=7, help="rounds of part 1 (%(default)s)")
    add("--parts", type=int, default=8, help="of a sentence, in part 2 (%(default)s)")
    add("--whole", action="store_true", help="decode for real with softmax, too, in part 2")
    add_model_options(parser)
    add_slot_options(parser)
    add_common_options(parser, "decoding")
    args = parse(parser)
    if not args.lengths + args.sentences + args.generator:
        parser.error("--lengths, --sentences and --generator must not all be empty")
    if any(length < 2 for length in args.lengths):
        parser.error("--lengths must be at least 2: the state at length 1 is empty")
    return args


@torch.no_grad()
def main() -> None:
    args = parse_arguments()
    report = start_report(args)
    dictionary = make_dictionary(args.vocabulary)
    longest = max(args.lengths + args.sentences + args.generator + [args.source_length or 0]) + 2
    models = build_contenders(args, dictionary, longest, abc_and_softmax(args))
    for model in models.values():
        for_inference(model)

    report["steps"] = measure_steps(args, models, dictionary)
    for row in report["steps"]:
        print(f"{row['length']:>6}", end="")
        for name, time in row["seconds_per_step"].items():
            size = row["state_bytes"][name] / MIB
            print(f"  |  {name}: {1e3 * time:8.1f} ms a step, state {size:8.2f} MiB", end="")
        print()
    report["sentences"] = [
        measure_sentences(args, models, dictionary, length) for length in args.sentences
    ]
    report["generator"] = [
        measure_generator(args, models, dictionary, length) for length in args.generator
    ]
    for row in report["sentences"] + report["generator"]:
        speeds = "  ".join(f"{name} {s:.0f}" for name, s in row["tokens_per_second"].items())
        print(f"{row['length']:>6}  tokens a second: {speeds}  |  ratio: {row['ratio']:.2f}")
        if "ratio_of_decoders" in row:
            print(f"        without the encoder: {row['ratio_of_decoders']:.2f}")
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
