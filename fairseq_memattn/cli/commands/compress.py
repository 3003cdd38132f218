"""`memattn compress`: stores each document as the M memory vectors of a GMAT with compression.

The model is one trained with --gmat-compress-after. A document is a line of a binarised split, the
lines between two blank lines, or the lines with the same id:

  memattn compress bin --path model.pt --subset train --output store
  torchrun --nproc-per-node 4 --no-python memattn compress bin --path model.pt --output store

The store is a folder with one SQLite file for each process, and the dictionaries. After an
interruption, the same command continues: no record is lost or written twice. Other subsets can be
added. A document that is longer than the model's limit is an error, unless --split is given.
"""

import argparse
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.shared.inputs import check_given
from fairseq_memattn.cli.shared.models import check_paths, load_model, open_checkpoint
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.errors import check_least

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairseq_memattn.compression.corpus import Corpus, Piece
    from fairseq_memattn.compression.shard import Header
    from fairseq_memattn.tasks.inference.compression import Written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("data", "folder made by fairseq-preprocess; its dictionaries are the model's")
    add("--path", "checkpoint of a GMAT with --gmat-compress-after", required=True)
    add.file("--output", "folder to make or add to", required=True, metavar="STORE")
    add("--subset", "default: %(default)s", default="test")
    add(
        "--documents",
        "what a document is: a line, the lines between two blank lines, or the lines with the "
        "same id in the .docids file of the split. Without ids the id of a document is SUBSET-LINE "
        "with its first line, from 0 (default: %(default)s)",
        choices=("lines", "blank-lines", "ids"),
        default="lines",
    )
    add.number(
        "--max-length",
        "maximum number of tokens of a record (default: that of a sequence in training)",
    )
    add.switch(
        "--split",
        "cut longer documents into pieces of --max-length tokens with the ids ID#0, ID#1, ...",
    )
    add(
        "--dtype",
        "type of the numbers in the store (default: %(default)s)",
        choices=("float32", "float16"),
        default="float32",
    )
    add(
        "--max-tokens",
        "tokens of a padded batch; a longer document is a batch of its own (default: %(default)s)",
        type=int,
        default=4096,
    )
    add.switch("--cpu", "compute on the CPU even if there is a GPU")


def check(args: argparse.Namespace) -> None:
    check_paths(args.data, args.path, one_model=True, one_folder=True)
    if args.output.exists() and not args.output.is_dir():
        raise ValueError(f"--output {args.output} is a file, not a folder")
    check_given(args, ["max_length"], 2)
    check_least(args, "max_tokens", 1)


def processes() -> list[int]:
    """The rank of this process, their number, and its rank on its machine, from torchrun."""
    defaults = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0}
    rank, world, local = (int(os.environ.get(name, one)) for name, one in defaults.items())
    if rank >= world:
        raise ValueError(f"RANK must be less than WORLD_SIZE {world}, but is {rank}")
    return [rank, world, local]


def run(args: argparse.Namespace) -> None:
    check(args)
    rank, world, local = processes()
    import torch
    from tqdm import tqdm

    from fairseq_memattn.compression.corpus import share
    from fairseq_memattn.compression.store import open_for_writing
    from fairseq_memattn.tasks.inference.compression import compress, encoder_of, header_of

    state, task = open_checkpoint(args.path, args.data, compresses=True)
    model = load_model(args.path, args.data, state, task).eval()
    encoder = encoder_of(model)
    corpus, docids = read(args, model, task)
    limit = limit_of(args, model, task)
    pieces = corpus.pieces(limit, args.split)
    refuse_other_documents(args, corpus, docids, limit)
    on_gpu = torch.cuda.is_available() and not args.cpu
    if on_gpu and local >= torch.cuda.device_count():
        raise ValueError(
            f"process {local} of this machine needs its own GPU, but there are "
            f"{torch.cuda.device_count()}; --cpu computes on the CPU"
        )
    header = header_of(model, task, args.dtype)
    shard, store = open_for_writing(args.output, header, rank)
    keep_dictionaries(Path(args.data), args.output, rank)
    model.to(f"cuda:{local}" if on_gpu else "cpu")
    mine = share(pieces, world, rank)
    name = "compress" if world == 1 else f"compress {rank + 1}/{world}"
    with tqdm(total=len(mine), desc=name, unit="record", disable=None, position=local) as bar:
        written = compress(encoder, corpus, mine, shard, store, args.max_tokens, bar.update)
    if rank == 0:
        blank = len(corpus.lines) - sum(len(lines) for _, lines in corpus.documents)
        print(
            f"--subset {args.subset}: {len(corpus.documents)} documents as {len(pieces)} records"
            + (f"; {blank} blank lines between them are left out" if blank else "")
        )
    shard.seal()
    print(summary(written, mine, header, shard.file))
    store.close()
    shard.close()


def read(args: argparse.Namespace, model: Any, task: Any) -> "tuple[Corpus, Path]":
    """The documents of `--subset`, as the model was trained to read them, and its .docids file."""
    from fairseq.data.data_utils import load_indexed_dataset
    from fairseq.models.roberta import RobertaModel

    from fairseq_memattn.compression.corpus import Corpus, documents_of
    from fairseq_memattn.data.documents.splits import split_prefix

    split = Path(args.data) / args.subset
    side = ""
    if getattr(task.cfg, "source_lang", None):
        languages = (task.cfg.source_lang, task.cfg.target_lang)
        split = split_prefix(Path(args.data), args.subset, *languages)
        side = f".{task.cfg.source_lang}"
    lines = load_indexed_dataset(f"{split}{side}", task.source_dictionary)
    if lines is None:
        raise ValueError(f"--subset {args.subset}: there is no {split}{side}.bin")
    docids = split.with_name(f"{split.name}.docids")
    documents = documents_of(args.documents, args.subset, lines.sizes, docids)
    bos = task.source_dictionary.bos() if isinstance(model, RobertaModel) else None
    return Corpus(lines, documents, bos), docids


def refuse_other_documents(
    args: argparse.Namespace, corpus: "Corpus", docids: Path, limit: int
) -> None:
    """Raises ValueError if the store has the subset by ids and is to get it without, or reversely.

    The ids of its records would differ, so that the store would have the text twice.
    """
    from fairseq_memattn.compression.corpus import Corpus, documents_of, source_of
    from fairseq_memattn.compression.store import shards

    present = shards(args.output)
    others = ["lines", "blank-lines"] if args.documents == "ids" else ["ids"] * docids.is_file()
    for other in others if present else ():
        first = documents_of(other, args.subset, corpus.lines.sizes, docids)[:1]
        if first == corpus.documents[:1]:
            continue
        bos = corpus.bos[0] if corpus.bos else None
        pieces = Corpus(corpus.lines, first, bos).pieces(limit, split=True)
        for piece in pieces[:1]:
            source = source_of(corpus.tokens(piece))
            if any(shard.source(piece.id) == source for shard in present):
                raise ValueError(
                    f"--documents {args.documents}: the store {args.output} already has --subset "
                    f"{args.subset} by --documents {other}; choose another --output"
                )
    for shard in present:
        shard.close()


def limit_of(args: argparse.Namespace, model: Any, task: Any) -> int:
    """The maximum number of tokens of a record."""
    trained, positions = task.max_positions(), model.encoder.max_positions()
    trained = trained[0] if isinstance(trained, tuple) else trained
    limit: int = args.max_length or min(trained, positions)
    if limit > positions:
        raise ValueError(
            f"--max-length must be at most the {positions} positions of the model, but is {limit}"
        )
    return limit


def keep_dictionaries(data: Path, store: Path, rank: int) -> None:
    """Copies the dictionaries to the store, so that decompression does not need the data."""
    for dictionary in sorted(data.glob("dict*.txt")):
        copy = store / dictionary.name
        if not copy.exists():
            unfinished = copy.with_name(f"{copy.name}.{rank}.tmp")
            try:
                shutil.copyfile(dictionary, unfinished)
                os.replace(unfinished, copy)
            finally:
                unfinished.unlink(missing_ok=True)


def summary(written: "Written", mine: "Sequence[Piece]", header: "Header", file: Path) -> str:
    """The number of new records, and how much smaller they are than a float32 vector per token.

    mine: the records of this process, including those that the store already had
    """
    from fairseq_memattn.compression.shard import DTYPES

    text = f"{file}: {written.records} new records of {written.tokens} tokens"
    if written.known:
        text += f"; {written.known} were there already"
    if mine:
        width = int(DTYPES[header.dtype][-1])
        smaller = 4 * sum(p.length for p in mine) / (width * len(mine) * header.vectors)
        text += (
            f"; {header.vectors} x {header.size} {header.dtype} each: {smaller:.2f} times smaller "
            "than a float32 vector per token"
        )
    return text
