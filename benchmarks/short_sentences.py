"""Training speed on short sentences, where a bounded memory has nothing to win.

Contenders, of the same sizes and with random weights, on the same batches of sentences that all
have the same length on both sides:

    abc       abc_mlp_transformer
    softmax   fairseq's transformer

A step is fairseq's label-smoothed cross entropy, forward and backward, clipping of the gradients
and an update by fairseq's Adam. The contenders take turns, step by step; reported are target
words a second by the median step, and the median over the rounds of the ratio of the two.
"""

import argparse
import statistics
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from common import (
    ARCHITECTURES,
    add_common_options,
    build_model,
    make_dictionary,
    parse,
    seconds,
    start_report,
    write_report,
)
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

Batch = dict[str, Any]


class Trainer:
    """A model, its criterion and its optimiser."""

    def __init__(self, name: str, args: Namespace, dictionary: Dictionary) -> None:
        self.model = build_model(name, args, dictionary, args.length + 1).train()
        task = Namespace(target_dictionary=dictionary)
        self.criterion = LabelSmoothedCrossEntropyCriterion(task, True, label_smoothing=0.1)
        config = FairseqAdamConfig(lr=[1e-4], adam_betas="(0.9, 0.98)")
        self.optimizer = FairseqAdam(config, list(self.model.parameters()))

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        loss, sample_size, _ = self.criterion(self.model, batch)
        self.optimizer.backward(loss / sample_size)
        self.optimizer.clip_grad_norm(1.0)
        self.optimizer.step()


def make_batch(args: Namespace, dictionary: Dictionary) -> Batch:
    sentences = max(1, args.tokens // args.length)
    shape = (sentences, args.length - 1)
    source, target = (
        torch.cat(
            [
                torch.randint(dictionary.nspecial, len(dictionary), shape),
                torch.full((sentences, 1), dictionary.eos()),
            ],
            dim=1,
        )
        for _ in range(2)
    )
    return {
        "net_input": {
            "src_tokens": source,
            "src_lengths": torch.full((sentences,), args.length),
            "prev_output_tokens": target.roll(1, dims=1),
        },
        "target": target,
        "ntokens": target.numel(),
    }


def measure(args: Namespace) -> tuple[dict[str, list[float]], int]:
    """Seconds of every step by contender, and the target words of a step."""
    dictionary = make_dictionary(args.vocabulary)
    trainers = {name: Trainer(name, args, dictionary) for name in ARCHITECTURES}
    torch.manual_seed(0)
    batch = make_batch(args, dictionary)
    taken: dict[str, list[float]] = {name: [] for name in trainers}
    for round_ in range(args.warmup + args.repeats):
        for name, trainer in trainers.items():
            time = seconds(args.clock, lambda trainer=trainer: trainer.step(batch))
            if round_ >= args.warmup:
                taken[name].append(time)
        steps = ", ".join(f"{name} {times[-1]:.2f} s" for name, times in taken.items() if times)
        print(f"round {round_ + 1 - args.warmup:>3}: {steps or 'warm-up'}", flush=True)
    return taken, batch["ntokens"]


def summarise(taken: dict[str, list[float]], words: int) -> dict[str, Any]:
    rounds = [softmax / abc for abc, softmax in zip(taken["abc"], taken["softmax"], strict=True)]
    return {
        "words_per_step": words,
        "seconds_per_step": taken,
        "words_per_second": {name: words / statistics.median(t) for name, t in taken.items()},
        "ratio": statistics.median(rounds),
        "ratio_of_fastest": min(taken["softmax"]) / min(taken["abc"]),
        "ratio_quartiles": statistics.quantiles(rounds, n=4)[::2],
    }


def plot(report: dict[str, Any], path: Path) -> None:
    """The words a second of every round."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, times in report["seconds_per_step"].items():
        speeds = [report["words_per_step"] / time for time in times]
        axes.plot(range(1, len(speeds) + 1), speeds, marker="o", label=ARCHITECTURES[name])
    title = "{length}-token sentences: {ratio:.2f} times fairseq's speed"
    axes.set(
        xlabel="round",
        ylabel="target words a second in training",
        title=title.format(length=report["setting"]["length"], ratio=report["ratio"]),
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--length", type=int, default=25, help="tokens a sentence (%(default)s)")
    add("--tokens", type=int, default=4000, help="tokens a batch, of one side (%(default)s)")
    add("--vocabulary", type=int, default=8000, help="words of the vocabulary (%(default)s)")
    add("--repeats", type=int, default=7, help="timed rounds, at least 2 (%(default)s)")
    add("--warmup", type=int, default=2, help="rounds before them (%(default)s)")
    add_common_options(parser, "short_sentences")
    return parse(parser)


def main() -> None:
    args = parse_arguments()
    report = start_report(args)
    report |= summarise(*measure(args))
    for name, speed in report["words_per_second"].items():
        print(f"{ARCHITECTURES[name]:>20} {speed:8.0f} words a second")
    print("abc / softmax: {ratio:.3f}, quartiles {ratio_quartiles}".format(**report))
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
