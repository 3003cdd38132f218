"""Speed on short sentences, for which a bounded memory has little advantage.

The contenders have the same sizes and random weights, and work on the same batches. All sentences
have the same length on both sides:

    abc       abc_mlp_transformer
    softmax   fairseq's transformer

A step of training consists of forward and backward pass of fairseq's label-smoothed cross entropy,
clipping of the gradients, and an update by fairseq's Adam. With `--beam`, fairseq's generator
translates a batch, encoder included, into sentences of `--length` tokens; with `--sentences N`, the
last sentence of windows of N, whose other sentences are given on both sides. The contenders take
turns. The report has the target words per second of the median step or batch, and the median over
the rounds of the ratio of the two times.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import (
    add_common_options,
    add_round_options,
    make_panels,
    make_parser,
    parse,
    start_report,
    take_turns,
    write_report,
)
from decoding_steps import for_inference
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
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

Batch = dict[str, Any]


class Trainer:
    """A model, its criterion and its optimiser."""

    def __init__(self, model: nn.Module, dictionary: Dictionary) -> None:
        self.model = model.train()
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
    source, target = (random_words(dictionary, args, sentences, args.length) for _ in range(2))
    source[:, -1] = target[:, -1] = dictionary.eos()
    return {
        "net_input": {
            "src_tokens": source,
            "src_lengths": source.new_full((sentences,), args.length),
            "prev_output_tokens": target.roll(1, dims=1),
        },
        "target": target,
        "ntokens": target.numel(),
    }


class Translator:
    """A model and fairseq's generator, for sentences of exactly --length tokens."""

    def __init__(self, model: nn.Module, args: Namespace, dictionary: Dictionary) -> None:
        self.model, words = for_inference(model), args.length * args.sentences
        self.generator = SequenceGenerator(
            [model], dictionary, beam_size=args.beam, max_len_a=0, max_len_b=words, min_len=words
        )

    def step(self, batch: Batch, prefix: Tensor | None) -> None:
        self.generator.generate([self.model], batch, prefix_tokens=prefix)


def search_steps(
    args: Namespace, dictionary: Dictionary, models: dict[str, nn.Module]
) -> dict[str, Callable[[], None]]:
    length = args.length * args.sentences
    source = random_words(dictionary, args, args.batch, length)
    source[:, -1] = dictionary.eos()
    lengths = source.new_full((args.batch,), length)
    batch = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    prefix = None
    if args.sentences > 1:
        prefix = random_words(dictionary, args, args.batch, length - args.length)
    translators = {name: Translator(model, args, dictionary) for name, model in models.items()}
    return {name: partial(each.step, batch, prefix) for name, each in translators.items()}


def measure(args: Namespace) -> tuple[dict[str, list[float]], int]:
    """The seconds of every step by contender, and the number of target words of a step.

    Words of a window's other sentences do not count.
    """
    dictionary = make_dictionary(args.vocabulary)
    longest = args.length * args.sentences + 2
    models = build_contenders(args, dictionary, longest, abc_and_softmax(args))
    torch.manual_seed(0)
    if args.beam:
        return take_turns(args, search_steps(args, dictionary, models)), args.batch * args.length
    trainers = {name: Trainer(model, dictionary) for name, model in models.items()}
    batch = make_batch(args, dictionary)
    steps = {name: partial(trainer.step, batch) for name, trainer in trainers.items()}
    return take_turns(args, steps), batch["ntokens"]


def summarise(taken: dict[str, list[float]], words: int) -> dict[str, Any]:
    rounds = [softmax / abc for abc, softmax in zip(taken["abc"], taken["softmax"], strict=True)]
    return {
        "words_per_step": words,
        "seconds_per_step": taken,
        "words_per_second": {name: words / statistics.median(t) for name, t in taken.items()},
        "ratio": statistics.median(rounds),
        "ratio_of_fastest": min(taken["softmax"]) / min(taken["abc"]),
        "ratio_quartiles": statistics.quantiles(rounds, n=4, method="inclusive")[::2],
    }


def plot(report: dict[str, Any], path: Path) -> None:
    """Plots the words per second of every round."""
    figure, (axes,) = make_panels(1)
    for name, times in report["seconds_per_step"].items():
        speeds = [report["words_per_step"] / time for time in times]
        axes.plot(range(1, len(speeds) + 1), speeds, marker="o", label=ARCHITECTURES[name])
    title = "{length}-token sentences: {ratio:.2f} times fairseq's speed"
    axes.set(
        xlabel="round",
        ylabel="target words a second",
        title=title.format(length=report["setting"]["length"], ratio=report["ratio"]),
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--length", type=int, default=25, help="tokens a sentence (%(default)s)")
    add("--tokens", type=int, default=4000, help="tokens a batch, of one side (%(default)s)")
    add("--beam", type=int, default=0, help="translate with this beam; 0 trains (%(default)s)")
    add("--batch", type=int, default=8, help="sentences of a batch, with --beam (%(default)s)")
    add("--sentences", type=int, default=1, help="of a window, with --beam (%(default)s)")
    add_round_options(parser, repeats=7, warmup=2)
    add_model_options(parser)
    add_slot_options(parser)
    add_common_options(parser, "short_sentences")
    parser.set_defaults(vocabulary=8000)
    args = parse(parser)
    if args.repeats < 2:
        parser.error(f"--repeats must be at least 2, for quartiles, but is {args.repeats}")
    if args.sentences > 1 and not args.beam:
        parser.error("--sentences needs --beam: windows are not trained on here")
    return args


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
