"""Convert a folder that `memattn export` has written back to a checkpoint of fairseq.

fairseq-train --finetune-from-model and --restore-file read the checkpoint, fairseq-preprocess
--srcdict and --tgtdict the dictionaries. The weights are those of the folder, bit for bit; they may
have been trained on with transformers.
"""

import argparse
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.hf_checkpoint import (
    read_json,
    read_weights,
    untrained,
    weight_files,
)
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, write_checkpoint
from fairseq_memattn.errors import MemAttnError

PARTS = {"cfg", "model_is_namespace", "dictionaries", "names", "constants", "lost"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("folder", "folder that `memattn export` has written", type=Path)
    add.file("--output", "checkpoint to write", required=True)
    add.file(
        "--dictionaries",
        "new folder for the dictionaries, with fairseq's names",
        required=True,
        metavar="FOLDER",
    )


def run(args: argparse.Namespace) -> None:
    file = args.folder / "fairseq.json"
    files = weight_files(args.folder)
    check_outputs({"--output": args.output}, [args.folder, *files])
    content = read_json(file)
    check(file, content)
    from fairseq_memattn.export import way_back
    from fairseq_memattn.export.new_folder import check_new, new_folder

    check_new(args.dictionaries, "--dictionaries")
    try:
        weights = way_back.restored(content, read_weights(files))
        cfg = way_back.options_of(content)
    except KeyError as error:
        raise MemAttnError(f"{args.folder} has no weight {error}, which {file} names") from None
    way_back.check_embeddings(weights, args.folder)
    with new_folder(args.dictionaries, "--dictionaries") as unfinished:
        way_back.write_dictionaries(content, args.folder, unfinished)
        write_checkpoint(untrained(cfg, weights), args.output)
    print(f"imported {len(weights)} weights: {args.output}")
    print(f"dictionaries: {', '.join(content['dictionaries'])} in {args.dictionaries}")


def check(file: Path, content: dict[str, Any]) -> None:
    """Raises MemAttnError for a file of another form, and for weights that were not kept."""
    if not content.keys() >= PARTS:
        missing = ", ".join(sorted(PARTS - content.keys()))
        raise MemAttnError(f"{file} is not what `memattn export` writes: it has no {missing}")
    for name in content["dictionaries"]:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise MemAttnError(f"{file} is refused: the dictionary {name} is not in its folder")
    if content["lost"]:
        raise MemAttnError(
            f"{file}: the model cannot be imported, as the export does not keep its weights "
            f"{', '.join(content['lost'])}"
        )
