"""Figures 1 and 2 of the ABC paper: decoding speed and memory of attention against length.

The contenders have the same sizes and random weights. The sizes of cross and causal memory are the
paper's, in features for RFA and T2R:

    softmax   fairseq's transformer, with its cache of keys and values
    abc       abc_mlp_transformer, 32 and 8
    rfa       rfa_transformer, 256 and 128
    t2r       t2r_transformer, 32 and 4

Decoding is greedy, and the source is as long as the target. Decoding starts from the states of the
source. The encoder is the same in all contenders and is left out.

For each length N, the benchmark measures the first step, which also writes the source into caches
or memories, and the steps at --parts + 1 positions from 2 to N. The time of a step is constant or
grows linearly with its position, so the trapezoidal rule gives the time of N steps, and the tokens
per second. Before a step, caches are filled with random keys and values. The size of a bounded
memory does not depend on the position.

The memory is that of the state before step N: caches or memories of both attentions in all layers.

The contenders take turns, and the results are medians over the rounds.
"""

import argparse
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
    copy_state,
    fill_caches,
    for_inference,
    next_words,
    random_states,
    start_words,
    state_bytes,
)
from models import ARCHITECTURES, add_model_options, build_contenders, make_dictionary
from torch import Tensor, nn
from tqdm import tqdm

SLOTS = {"abc": (32, 8), "rfa": (256, 128), "t2r": (32, 4)}
STEPS_IN_A_ROW = 3


class Sentence:
    """Decoding of one length by one contender: its first step, and later steps."""

    def __init__(
        self, model: nn.Module, encoded: Encoded, words: Tensor, positions: list[int]
    ) -> None:
        self.model, self.encoded, self.words = model, encoded, words
        self.first_taken: list[float] = []
        start: State = {}
        next_words(model, words[:, :1], encoded, start)
        self.steps: dict[int, Step] = {}
        for position in positions:
            state = copy_state(start)
            fill_caches(model, words[:, :position], state)
            self.steps[position] = Step(model, encoded, words[:, :position], state)

    def run(self, args: Namespace) -> None:
        work = (self.model, self.words[:, :1], self.encoded)
        self.first_taken.append(seconds(args, lambda: next_words(*work, {})))
        for step in self.steps.values():
            step.run(args, STEPS_IN_A_ROW)

    def seconds(self) -> float:
        """The seconds of the whole sentence."""
        total = statistics.median(self.first_taken)
        times = [(position, step.median()) for position, step in self.steps.items()]
        total += times[0][1]
        for (before, left), (after, right) in pairwise(times):
            total += (after - before) * (left + right) / 2
        return total


def measure(args: Namespace, models: dict[str, nn.Module], length: int) -> dict[str, Any]:
    dictionary = next(iter(models.values())).decoder.dictionary
    torch.manual_seed(0)
    encoded, words = random_states(args, length), start_words(dictionary, args, length - 1)
    positions = sorted({2 + part * (length - 2) // args.parts for part in range(args.parts + 1)})
    sentences = {name: Sentence(model, encoded, words, positions) for name, model in models.items()}
    for _ in tqdm(range(args.repeats), f"length {length}", leave=False, disable=None):
        for sentence in sentences.values():
            sentence.run(args)
    speed = {name: args.batch * length / one.seconds() for name, one in sentences.items()}
    return {
        "length": length,
        "seconds_first_step": {
            name: statistics.median(one.first_taken) for name, one in sentences.items()
        },
        "seconds_per_step": {
            name: {position: step.median() for position, step in one.steps.items()}
            for name, one in sentences.items()
        },
        "tokens_per_second": speed,
        "state_bytes": {
            name: state_bytes(one.steps[length].state) for name, one in sentences.items()
        },
        "abc_over": {name: speed["abc"] / other for name, other in speed.items() if name != "abc"},
    }


def plot(report: dict[str, Any], path: Path) -> None:
    rows, setting = report["rows"], report["setting"]
    lengths = [row["length"] for row in rows]
    figure, (speed, memory) = make_panels(2)
    for name in rows[0]["tokens_per_second"]:
        slots = setting.get(name)
        label = ARCHITECTURES[name] + (f" {slots[0]}-{slots[1]}" if slots else "")
        tokens = [row["tokens_per_second"][name] for row in rows]
        speed.plot(lengths, tokens, marker="o", label=label)
        sizes = [row["state_bytes"][name] / MIB for row in rows]
        memory.plot(lengths, sizes, marker="o", label=label)
    over_lengths(speed, lengths, yscale="log", ylabel="tokens a second", title="decoding speed")
    over_lengths(memory, lengths, yscale="log", ylabel="MiB", title="memory of attention")
    machine = "{processor}, {threads} threads".format(**report)
    figure.suptitle("batch {batch}, {layers} layers of {width}, ".format(**setting) + machine)
    figure.savefig(path, dpi=120)


def describe(row: dict[str, Any]) -> str:
    parts = [
        f"{name}: {speed:7.1f} tokens a second, {row['state_bytes'][name] / MIB:8.2f} MiB"
        for name, speed in row["tokens_per_second"].items()
    ]
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in row["abc_over"].items())
    return f"{row['length']:>6}  {'  |  '.join(parts)}  |  abc over {ratios}"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    lengths = [128, 256, 512, 1024, 2048, 4096]
    add("--lengths", type=int, nargs="+", default=lengths, help="at least 2 (%(default)s)")
    add(
        "--contenders",
        nargs="+",
        choices=ARCHITECTURES,
        default=list(ARCHITECTURES),
        help="abc and others; without softmax great lengths need little memory (%(default)s)",
    )
    for name, slots in SLOTS.items():
        add(
            f"--{name}",
            type=int,
            nargs=2,
            metavar=("CROSS", "CAUSAL"),
            default=slots,
            help="its sizes of memory (%(default)s)",
        )
    add("--parts", type=int, default=2, help="of a sentence, for the steps (%(default)s)")
    add("--batch", type=int, default=16, help="sentences (%(default)s)")
    add("--repeats", type=int, default=5, help="rounds (%(default)s)")
    add_model_options(parser)
    add_common_options(parser, "figure1")


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add_options(parser)
    args = parse(parser)
    if min(args.lengths) < 2:
        parser.error(f"--lengths must be at least 2, but one is {min(args.lengths)}")
    if "abc" not in args.contenders:
        parser.error("--contenders must include abc")
    return args


@torch.no_grad()
def main() -> None:
    args = parse_arguments()
    report = start_report(args)
    slots = {name: getattr(args, name, (0, 0)) for name in args.contenders}
    dictionary = make_dictionary(args.vocabulary)
    models = build_contenders(args, dictionary, max(args.lengths) + 2, slots)
    for model in models.values():
        for_inference(model)
    report["rows"] = []
    for length in args.lengths:
        report["rows"].append(measure(args, models, length))
        print(describe(report["rows"][-1]), flush=True)
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
