"""`memattn perplexity`: the perplexity of a language model with context or memory across blocks.

Three ways to use the text before a block:

  --context-window 0     none of it: every block starts without context
  --context-window 480   read the last 480 tokens again before each block, with the result of
                         fairseq-eval-lm
  --stateful             keep the memory from block to block, so that each token is predicted from
                         all of the text before it; this needs a bounded memory

One of --context-window and --stateful is required. With a folder of a causal model of transformers
for --path, the data are a file of text, and fairseq is not needed.
"""

import argparse
import time
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_memattn.cli.shared import models
from fairseq_memattn.cli.shared.inputs import check_given, refuse_unused, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, say
from fairseq_memattn.errors import LARGEST
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import write_json
from fairseq_memattn.host.installation import require_fairseq

if TYPE_CHECKING:
    from torch import Tensor

    from fairseq_memattn.evaluation.perplexity import LossByPosition

MAX_TOKENS = 4096
BLOCK = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("data", "folder made by fairseq-preprocess, or a file of UTF-8 text")
    add("--path", "checkpoint, or folder of a model of transformers", required=True)
    add("--subset", "default: %(default)s", default="test")
    add.number(
        "--tokens-per-sample",
        "number of tokens of a block, including its context (default: that of the training; of "
        f"a model of transformers {BLOCK})",
    )
    add.number(
        "--context-window",
        "tokens of context that are read again for each block, less than "
        "--tokens-per-sample; several to compare. Required without --stateful",
        nargs="*",
        default=[],
    )
    add.switch(
        "--stateful", "keep the memory from block to block. Required without --context-window"
    )
    add(
        "--positions",
        "with --stateful: continue counts positions over the whole text; restart counts them "
        "from the start of each block, for models trained on blocks much shorter than the text "
        "(default: %(default)s)",
        choices=["continue", "restart"],
        default="continue",
    )
    add.switch(
        "--documents",
        "with --stateful: start each document with an empty memory, by the .docids file of "
        "the split, and read several documents side by side",
    )
    add.number(
        "--max-tokens",
        "tokens of a padded batch of blocks, or of the documents read side by side "
        f"(default: {MAX_TOKENS}, or --tokens-per-sample if that is more)",
    )
    add.switch(
        "--by-position",
        "also print the perplexity of the tokens that have 0 to 63 tokens before them in "
        "their block (with --stateful: in the text or the document), 64 to 127, 128 to 255, and so "
        "on, and the number of these tokens",
    )
    add("--json", "also write the tables to this file", type=Path)
    add.switch("--cpu", "compute on the CPU even if there is a GPU")


class Row(NamedTuple):
    """The result of one way to use the text before a block.

    loss: mean negative log-probability of a token, end of line included, in bits
    read: the number of tokens that the model read; seconds: the time
    by_position: the fields of each PositionRange
    """

    way: str
    perplexity: float
    loss: float
    read: int
    seconds: float
    by_position: list[dict[str, float]]


def check(args: argparse.Namespace) -> None:
    if not args.stateful and not args.context_window:
        raise ValueError("give --context-window, --stateful or both")
    check_given(args, ("tokens_per_sample", "max_tokens"), 1, LARGEST)
    if args.tokens_per_sample is not None:
        check_sizes(args)
    if not args.stateful:
        given = argparse.Namespace(positions=args.positions != "continue", documents=args.documents)
        refuse_unused(given, ("positions", "documents"), "needs --stateful")
    check_outputs(
        {"--json": args.json}, [*models.folders(args.data), *models.checkpoints(args.path)]
    )
    if Path(args.path).is_dir():
        require_file("the text", Path(args.data))
        given = argparse.Namespace(
            positions=args.positions != "continue",
            documents=args.documents,
            max_tokens=args.max_tokens,
        )
        refuse_unused(given, vars(given), "is for a checkpoint, but --path is a folder")
    else:
        models.check_paths(args.data, args.path, one_model=True, one_folder=True)


def check_sizes(args: argparse.Namespace) -> None:
    """Raises ValueError for blocks, context and batches that do not fit into each other."""
    for window in args.context_window:
        if not 0 <= window < args.tokens_per_sample:
            raise ValueError(
                "--context-window must be 0 or more and leave some of the --tokens-per-sample "
                f"{args.tokens_per_sample} to predict, but is {window}"
            )
    if args.max_tokens is not None and args.max_tokens < args.tokens_per_sample:
        raise ValueError(
            f"--max-tokens must be at least --tokens-per-sample {args.tokens_per_sample}, but is "
            f"{args.max_tokens}"
        )


def run(args: argparse.Namespace) -> None:
    is_folder = Path(args.path).is_dir()
    if not is_folder:
        require_fairseq("the command with a checkpoint")
    check(args)
    rows = of_transformers(args) if is_folder else of_fairseq(args)
    if args.json:
        write_json(args.json, [row._asdict() for row in rows])
    print(table([["", "perplexity", "loss (base 2)", "tokens read", "seconds"], *map(shown, rows)]))
    if args.by_position:
        print(f"\n{table(positions_table(rows))}")


def of_transformers(args: argparse.Namespace) -> list[Row]:
    """The results of a model in transformers' format."""
    from tqdm import tqdm

    from fairseq_memattn.cli.shared.causal_models import (
        learned_positions,
        load_causal,
        read_tokens,
    )
    from fairseq_memattn.evaluation.perplexity import causal_block_losses, causal_stream_losses

    model, tokenizer = load_causal(Path(args.path), "cpu" if args.cpu else None)
    tokens = read_tokens([Path(args.data)], tokenizer)
    if len(tokens) < 2:
        raise ValueError(f"{args.data}: has fewer than two tokens")
    args.tokens_per_sample = args.tokens_per_sample or BLOCK
    check_sizes(args)
    if (most := learned_positions(model)) is not None:
        check_positions(args, len(tokens), most)
    ways: dict[str, Any] = {
        f"context {window}": partial(causal_block_losses, window=window)
        for window in args.context_window
    }
    if args.stateful:
        ways["stateful"] = causal_stream_losses
    rows = []
    for way, losses_of in ways.items():
        start = time.perf_counter()
        with tqdm(total=len(tokens), desc=way, disable=None, unit="token", leave=False) as bar:
            size = args.tokens_per_sample
            losses, read = losses_of(model, tokens, size=size, progress=bar.update)
        rows.append(result(way, losses, read, start))
    return rows


def check_positions(args: argparse.Namespace, tokens: int, most: int) -> None:
    """Raises ValueError for blocks, or a text, of more tokens than a model has positions."""
    longest = min(args.tokens_per_sample, tokens)
    if args.context_window and longest > most:
        raise ValueError(
            f"--tokens-per-sample: a block may have at most the {most} positions of the model, "
            f"but one has {longest}"
        )
    if args.stateful and tokens - 1 > most:
        raise ValueError(
            f"--stateful: the text may have at most the {most} positions of the model and one more "
            f"token, but has {tokens}"
        )


def of_fairseq(args: argparse.Namespace) -> list[Row]:
    """The results of a checkpoint."""
    import torch

    import fairseq_memattn

    fairseq_memattn.register()
    state, task = models.open_checkpoint(args.path, args.data, kind=models.LANGUAGE_MODEL)
    if task.source_dictionary is None or not hasattr(task, "eval_lm_dataloader"):
        raise ValueError(f"--path {args.path}: not a language model")
    if args.tokens_per_sample is None:
        args.tokens_per_sample = task.args.tokens_per_sample
        check_sizes(args)
    if args.max_tokens is None:
        args.max_tokens = max(MAX_TOKENS, args.tokens_per_sample)
    model = models.load_model(args.path, args.data, state, task)
    model.to("cuda" if torch.cuda.is_available() and not args.cpu else "cpu").eval()
    streams = read_streams(args, model, task) if args.stateful else []
    rows = [in_blocks(args, model, task, window) for window in args.context_window]
    if args.stateful:
        rows.append(as_stream(args, model, task, streams))
    return rows


def result(way: str, losses: "LossByPosition", read: int, start: float) -> Row:
    """start: when it began, by time.perf_counter()"""
    seconds = time.perf_counter() - start
    by_position = [part._asdict() for part in losses.ranges()]
    return Row(way, losses.perplexity, losses.loss, read, seconds, by_position)


def positions_table(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each range of positions, two columns for each of the rows."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for part in row.by_position:
            before = f"{part['begin']} to {part['end'] - 1}"
            cells = [f"{part['perplexity']:.2f}", f"{part['tokens']:,}"]
            found.setdefault(before, {})[row.way] = cells
    lines = [
        [before, *(cell for row in rows for cell in by_way.get(row.way, ["", ""]))]
        for before, by_way in sorted(found.items(), key=lambda item: int(item[0].split()[0]))
    ]
    return [["tokens before", *(name for row in rows for name in (row.way, "tokens"))], *lines]


def shown(row: Row) -> list[str]:
    return [
        row.way,
        f"{row.perplexity:.2f}",
        f"{row.loss:.4f}",
        f"{row.read}",
        f"{row.seconds:.1f}",
    ]


def in_blocks(args: argparse.Namespace, model: Any, task: Any, window: int) -> Row:
    """The result of fairseq-eval-lm: each block after the last tokens before it."""
    from fairseq import tasks
    from fairseq.utils import move_to_cuda
    from tqdm import tqdm

    from fairseq_memattn.evaluation.perplexity import LossByPosition, block_losses

    lines = read_split(args, task)  # the sizes are in a mapped file, which is closed with it
    total_tokens = int(lines.sizes.sum())
    settings = deepcopy(task.args)
    settings.tokens_per_sample = args.tokens_per_sample - window
    settings.shorten_method = "none"
    blocks = tasks.setup_task(settings)
    blocks.load_dataset(args.subset)
    dataset = blocks.dataset(args.subset)
    check_blocks(args, model, dataset.sizes, window)
    batches = blocks.eval_lm_dataloader(
        dataset, args.max_tokens, num_workers=0, context_window=window
    )
    pad, on_gpu = task.source_dictionary.pad(), next(model.parameters()).is_cuda
    read, losses = 0, LossByPosition()
    start = time.perf_counter()
    for batch in tqdm(batches, f"context {window}", disable=None, unit="batch", leave=False):
        read += int(batch["net_input"]["src_tokens"].ne(pad).sum())
        losses.add(*block_losses(model, move_to_cuda(batch) if on_gpu else batch, pad))
    if losses.tokens < total_tokens:
        say(
            f"warning: {total_tokens - losses.tokens} of {total_tokens} tokens of {args.subset} "
            "are in no block, as in the training with --sample-break-mode "
            f"{settings.sample_break_mode}"
        )
    return result(f"context {window}", losses, read, start)


def read_split(args: argparse.Namespace, task: Any) -> Any:
    """The lines of the split. Raises ValueError if there are none."""
    from fairseq.data.data_utils import load_indexed_dataset

    split = Path(args.data) / args.subset
    lines = load_indexed_dataset(str(split), task.source_dictionary)
    if lines is None:
        raise ValueError(f"--subset {args.subset}: there is no {split}.bin")
    if not len(lines):
        raise ValueError(f"--subset {args.subset}: {split}.bin has no text")
    return lines


def check_blocks(args: argparse.Namespace, model: Any, sizes: Any, window: int) -> None:
    """Raises ValueError for blocks that have more tokens than the model has learned positions.

    sizes: the number of tokens of each block without its context
    """
    from fairseq.modules import LearnedPositionalEmbedding

    longest = int(sizes.max())
    limit = model.max_positions()
    if longest + window <= limit:
        return
    if isinstance(model.decoder.embed_positions, LearnedPositionalEmbedding):
        raise ValueError(
            f"--tokens-per-sample: a block may have at most the {limit} positions of the model, "
            f"but one of {args.subset} has {longest + window}"
        )
    say(
        f"warning: the model was trained on blocks of {limit} tokens, but reads blocks of "
        f"{longest + window}"
    )


def read_streams(args: argparse.Namespace, model: Any, task: Any) -> "list[Tensor]":
    """The tokens of the whole text, or of each document, the shortest first."""
    import torch

    from fairseq_memattn.documents.ids import read_docids

    if not hasattr(model.decoder, "read_on"):
        raise ValueError(
            f"--path {args.path}: --stateful needs a bounded memory, but this model has none"
        )
    if getattr(task.args, "add_bos_token", False):
        raise ValueError(
            f"--path {args.path}: --stateful does not work with --add-bos-token, with which the "
            "model was trained"
        )
    split, lines = Path(args.data) / args.subset, read_split(args, task)
    streams = [torch.cat([lines[i] for i in range(len(lines))]).long()]
    if args.documents:
        documents = read_docids(split.with_name(f"{split.name}.docids"), len(lines))
        lengths = [
            sum(len(lines[i]) for i in documents.sentences_of(number))
            for number in range(len(documents))
        ]
        streams = sorted(streams[0].split(lengths), key=len)
    return streams


def as_stream(args: argparse.Namespace, model: Any, task: Any, streams: "Sequence[Tensor]") -> Row:
    """The result with one memory over each of the streams of `read_streams`."""
    import math

    import torch
    from tqdm import tqdm

    from fairseq_memattn.evaluation.perplexity import LossByPosition, stream_scores

    trained = task.args.tokens_per_sample
    if args.positions == "continue" and len(streams[-1]) > trained:
        say(
            f"note: the model was trained on blocks of {trained} tokens, but counts positions up "
            f"to {len(streams[-1])}; --positions restart counts them as in training"
        )
    side_by_side = max(1, args.max_tokens // args.tokens_per_sample)
    losses, tokens = LossByPosition(), sum(map(len, streams))
    start = time.perf_counter()
    with tqdm(total=tokens, desc="stateful", disable=None, unit="token", leave=False) as bar:
        for first in range(0, len(streams), side_by_side):
            scores = stream_scores(
                model,
                streams[first : first + side_by_side],
                segment=args.tokens_per_sample,
                eos=task.source_dictionary.eos(),
                pad=task.source_dictionary.pad(),
                restart_positions=args.positions == "restart",
                progress=bar.update,
            )
            for row in scores:
                losses.add(torch.arange(len(row)), row.double() / -math.log(2))
    way = "stateful" if args.positions == "continue" else "stateful, positions restart"
    return result(way, losses, tokens, start)
