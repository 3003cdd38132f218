"""Translating one more sentence of a document, against the number of sentences before it.

The contenders have the same sizes, random weights, and documents of random words:

    stream    abc_mlp_transformer with --stream: reads the memory of the document, and writes the
              sentence and its translation into it
    windows   abc_mlp_transformer with windows of --context sentences before the current one
    all       pretrained_transformer, with softmax attention and all sentences before as context

A round translates sentence number n of --batch documents by greedy search, from what the contender
keeps of the n - 1 sentences before. Every translation has --words words. The peak memory is that of
the round, without the model.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import (
    MIB,
    add_common_options,
    add_round_options,
    make_panels,
    make_parser,
    over_lengths,
    parse,
    peak_bytes,
    start_report,
    take_turns,
    write_report,
)
from fairseq.data import Dictionary
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from models import add_model_options, add_slot_options, build_model, make_dictionary, random_words
from torch import Tensor, nn

from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.data.documents.segments import Segment, segment_rows
from fairseq_memattn.documents.ids import Documents
from fairseq_memattn.tasks.inference.context_generator import (
    ContextEnsemble,
    ContextGenerator,
    MemoryEnsemble,
    MemoryGenerator,
)

Work = Callable[[], object]


def random_sentences(args: Namespace, dictionary: Dictionary, count: int) -> list[Tensor]:
    words = random_words(dictionary, args, count, args.words).cpu()
    return list(torch.cat([words, torch.full((count, 1), dictionary.eos())], dim=1))


def documents(args: Namespace, dictionary: Dictionary, length: int, context: int) -> Any:
    """Documents of `length` sentences, of which windows have `context` earlier ones."""
    source = random_sentences(args, dictionary, args.batch * length)
    sizes = np.full(len(source), args.words + 1)
    starts = np.arange(args.batch) * length
    separator = dictionary.index("word0")
    most = (length + 1) * (args.words + 1)
    options = WindowOptions(
        *(context, context, most, most, separator, separator, dictionary.pad(), dictionary.eos())
    )
    return DocumentDataset(source, None, (sizes, None), Documents(starts, len(source)), options)


def generator(ensemble: EnsembleModel, args: Namespace, dictionary: Dictionary) -> Any:
    return SequenceGenerator(
        ensemble,
        dictionary,
        beam_size=1,
        min_len=args.words,
        max_len_a=0,
        max_len_b=args.words,
    )


def by_windows(
    model: nn.Module, args: Namespace, dictionary: Dictionary, length: int, context: int
) -> Work:
    dataset = documents(args, dictionary, length, context)
    ensemble = ContextEnsemble([model], dictionary.index("word0"), dictionary)
    search = generator(ensemble, args, dictionary)
    translate = ContextGenerator(search, [model], dataset, None, None, torch.device(args.device))
    before = min(context, length - 1)
    contexts = [random_sentences(args, dictionary, before) for _ in range(args.batch)]
    last = [number * length + length - 1 for number in range(args.batch)]
    return lambda: translate(last, contexts)


def by_stream(model: Any, args: Namespace, dictionary: Dictionary, length: int) -> tuple[Work, int]:
    """Also the bytes that are kept for a document."""
    dataset = documents(args, dictionary, length, 0)
    memory = [model.decoder.empty_memory(1)]
    if length > 1:
        sides = [random_sentences(args, dictionary, length - 1) for _ in range(2)]
        inputs, _ = segment_rows(dataset.collate, [Segment(*sides)])
        inputs = {k: v.to(args.device) if isinstance(v, Tensor) else v for k, v in inputs.items()}
        with torch.no_grad():
            memory = [model(**inputs, features_only=True)[1]["memory"]]
    search = generator(MemoryEnsemble([model]), args, dictionary)
    last = [number * length + length - 1 for number in range(args.batch)]

    def work() -> object:
        memories = dict.fromkeys(range(args.batch), memory)
        device = torch.device(args.device)
        translate = MemoryGenerator(search, [model], dataset, None, None, device, memories=memories)
        return translate(last, [[]] * args.batch)

    kept = sum(x.nbytes for side in memory[0] for state in side for x in state)
    return work, kept


def measure(args: Namespace) -> list[dict[str, Any]]:
    dictionary = make_dictionary(args.vocabulary)
    longest = (max(args.lengths) + 1) * (args.words + 2)
    slots = {"abc_cross_slots": args.cross_slots, "abc_causal_slots": args.causal_slots}
    build = (args, dictionary, longest)
    stream = build_model("abc_mlp_transformer", *build, stream=True, **slots).eval()
    windows = build_model("abc_mlp_transformer", *build, **slots).eval()
    everything = build_model("pretrained_transformer", *build).eval()
    contenders: dict[tuple[int, str], Work] = {}
    kept: dict[int, int] = {}
    for length in args.lengths:
        given = (args, dictionary, length)
        contenders[length, "stream"], kept[length] = by_stream(stream, *given)
        contenders[length, "windows"] = by_windows(windows, *given, args.context)
        contenders[length, "all"] = by_windows(everything, *given, length - 1)
    peaks = {key: peak_bytes(args, work) for key, work in contenders.items()}
    medians = {key: statistics.median(s) for key, s in take_turns(args, contenders).items()}
    rows = []
    for length in args.lengths:
        names = [name for number, name in contenders if number == length]
        seconds = {name: medians[length, name] / args.batch for name in names}
        memory = {name: peaks[length, name] for name in names}
        shown = ", ".join(
            f"{name} {1e3 * seconds[name]:.1f} ms {memory[name] / MIB:.0f} MiB" for name in names
        )
        print(f"sentence {length}: {shown}", flush=True)
        rows.append(
            {
                "length": length,
                "seconds_per_sentence": seconds,
                "peak_bytes": memory,
                "memory_of_a_document": kept[length],
            }
        )
    return rows


def plot(report: dict[str, Any], path: Path) -> None:
    figure, panels = make_panels(2)
    rows = report["sentences"]
    lengths = [row["length"] for row in rows]
    shown = ("seconds_per_sentence", "ms a sentence", 1e3), ("peak_bytes", "peak MiB", 1 / MIB)
    for axes, (key, label, scale) in zip(panels, shown, strict=True):
        for name in rows[0][key]:
            axes.plot(lengths, [scale * row[key][name] for row in rows], marker="o", label=name)
        over_lengths(axes, lengths, yscale="log", ylabel=label)
        axes.set_xlabel("number of the sentence in its document")
    figure.savefig(path, dpi=120)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    lengths = [1, 4, 10, 30]
    add("--lengths", type=int, nargs="+", default=lengths, help="n (%(default)s)")
    add("--words", type=int, default=12, help="of a sentence (%(default)s)")
    add("--context", type=int, default=3, help="sentences before, in windows (%(default)s)")
    add("--batch", type=int, default=4, help="documents side by side (%(default)s)")
    add_model_options(parser)
    add_slot_options(parser)
    add_round_options(parser, repeats=3, warmup=1)
    add_common_options(parser, "document_length")
    return parse(parser)


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    report = start_report(args)
    with torch.no_grad():
        report["sentences"] = measure(args)
    write_report(report, args.out)
    plot(report, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
