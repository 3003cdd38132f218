"""`memattn decompress`: computes the encoder's output for documents in a store.

Writes the L vectors that the encoder computes for a document of L tokens, or the tokens that its
masked language model predicts. It reads only the store of `memattn compress` and the model:

  memattn decompress store --path model.pt --output features.npz     numpy.load(...)[ID] is (L, E)
  memattn decompress store --path model.pt --tokens --output filled.txt     ID, a tab, L tokens
  memattn decompress store --list                                    ID, a tab, L of each document
  memattn decompress store --check                                   check the records
"""

import argparse
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.archive_limits import RefusedArchive, safe_path
from fairseq_memattn.cli.shared.models import check_paths, checkpoints, load_model, open_checkpoint
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, say
from fairseq_memattn.errors import check_least
from fairseq_memattn.files import replacing
from fairseq_memattn.host.installation import require_fairseq

if TYPE_CHECKING:
    from torch import Tensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("store", "folder made by memattn compress", type=Path)
    add("--path", "checkpoint of the model that made it")
    add.file("--output", "file to write: .npz, or text with --tokens")
    add.switch(
        "--tokens",
        "write the most likely token of the masked language model at each position, with "
        "those of beginning and end",
    )
    add("--ids", "these documents, in this order, instead of all", nargs="+", metavar="ID")
    add.switch("--list", "only print the ids and lengths of the documents")
    add.switch("--check", "only check that every record is intact")
    add.switch(
        "--drop-damaged",
        "with --check, remove damaged records and unreadable files; the same memattn "
        "compress command then writes them again",
    )
    add(
        "--max-tokens",
        "tokens of a padded batch; a longer document is its own batch (default: %(default)s)",
        type=int,
        default=4096,
    )
    add.switch("--cpu", "compute on the CPU even if there is a GPU")


def check(args: argparse.Namespace) -> None:
    if not args.store.is_dir():
        raise ValueError(f"{args.store}: there is no such folder")
    if args.drop_damaged and not args.check:
        raise ValueError("--drop-damaged needs --check")
    if args.check or args.list:
        flag = "--check" if args.check else "--list"
        for other in ("path", "output", "tokens", "ids", "list"):
            if getattr(args, other) and flag != f"--{other}":
                raise ValueError(f"{flag} only reads the store: leave out --{other}")
        return
    for flag in ("path", "output"):
        if getattr(args, flag) is None:
            raise ValueError(f"--{flag} is needed, except with --check and --list")
    check_paths(str(args.store), args.path, one_model=True)
    check_least(args, "max_tokens", 1)
    check_outputs({"--output": args.output}, [args.store, *checkpoints(args.path)])
    if not args.tokens and args.output.suffix != ".npz":
        raise ValueError(f"--output must end with .npz without --tokens, but is {args.output}")


def run(args: argparse.Namespace) -> None:
    if not args.check and not args.list:
        require_fairseq("the command without --check and --list")
    check(args)
    from fairseq_memattn.compression.store import Store

    if args.check:
        check_store(args.store, args.drop_damaged)
        return
    store = Store(args.store)
    if args.list:
        for id, length in store.lengths():
            print(f"{id}\t{length}")
        return
    ids = list(store.ids()) if args.ids is None else args.ids
    for number, id in enumerate(args.ids or ()):
        if id not in store:
            raise ValueError(f"--ids {id}: {args.store} has no such record")
        if id in args.ids[:number]:
            raise ValueError(f"--ids {id} is given twice")
    if not args.tokens:
        check_names(args.output, ids)
    import fairseq_memattn

    fairseq_memattn.register()
    import torch
    from tqdm import tqdm

    from fairseq_memattn.tasks.inference.compression import decompress, encoder_of, header_of

    state, task = open_checkpoint(
        args.path, str(args.store), languages=store.header.languages, compresses=True
    )
    model = load_model(args.path, str(args.store), state, task).eval()
    encoder, dtype = encoder_of(model), store.header.dtype
    header_of(model, task, dtype).check_same(store.header, args.store)
    if args.tokens and not hasattr(model.encoder, "lm_head"):
        raise ValueError(f"--tokens: --path {args.path} is not a masked language model")
    model.to("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    made = decompress(encoder, ids, store, args.max_tokens)
    found = tqdm(made, "decompress", total=len(ids), unit="record", disable=None)
    with replacing(args.output) as unfinished:
        if args.tokens:
            write_tokens(found, model, task.source_dictionary, unfinished)
        else:
            write_features(found, unfinished)
    print(f"wrote {len(ids)} records to {args.output}")


def check_store(folder: Path, drop: bool) -> None:
    """Prints the errors of damaged records and files, which it removes with `drop`."""
    from fairseq_memattn.compression.store import faults, files, shards

    if not files(folder):
        raise ValueError(f"{folder} is not a store: it has no shards")
    found, intact = faults(folder, drop)
    for fault in found:
        say(fault)
    if found and not drop:
        raise ValueError(
            f"{folder}: {intact} records are intact, and {len(found)} records or files, listed "
            "above, are damaged; --drop-damaged removes them, and memattn compress writes them "
            "again"
        )
    repaired = f"; {len(found)} faults, listed above, were removed" if found else ""
    print(f"{folder}: {intact} records are intact{repaired}")
    old = [shard.file.name for shard in shards(folder) if shard.format == "1"]
    if old:
        print(
            f"note: {', '.join(old)}: written by a release whose files have no checksum of the "
            "header, of the order of the records and of the lengths that --list prints"
        )


def check_names(output: Path, ids: list[str]) -> None:
    """Raises RefusedArchive for ids that are no names of different files in an archive `output`."""
    for id in ids:
        try:
            safe_path(f"{id}.npy")
        except RefusedArchive as error:
            raise RefusedArchive(f"--output {output}: the id {id!r} is {error}") from None
        if "\0" in id:
            raise RefusedArchive(f"--output {output}: the id {id!r} has a NUL, which ends names")
    known = set(ids)
    for id in ids:
        if f"{id}.npy" in known:
            raise RefusedArchive(f"--output {output}: {id} and {id}.npy have the same name there")


def write_features(documents: "Iterable[tuple[str, Tensor]]", output: Path) -> None:
    """Writes the file that numpy.savez would write, one array at a time."""
    from numpy.lib import format

    with zipfile.ZipFile(output, "w") as archive:
        for id, features in documents:
            with archive.open(f"{id}.npy", "w", force_zip64=True) as file:
                format.write_array(file, features.float().cpu().numpy(), allow_pickle=False)


def write_tokens(
    documents: "Iterable[tuple[str, Tensor]]", model: Any, dictionary: Any, output: Path
) -> None:
    """Writes a line for each document: its id, a tab, and the most likely token at each position.

    documents: ids and features (L, E)
    """
    import torch

    with open(output, "w", encoding="utf-8") as file, torch.no_grad():
        for id, features in documents:
            filled = model.encoder.lm_head(features).argmax(dim=-1).tolist()
            file.write(f"{id}\t{' '.join(dictionary[token] for token in filled)}\n")
