"""Convert a folder of transformers to a checkpoint of fairseq: an exported or a pretrained model.

A folder that `memattn export` has written has the weights of the checkpoint bit for bit; they may
have been trained on with transformers. A translator of Marian (OPUS-MT), M2M-100, NLLB-200 or
mBART-50 becomes a pretrained_transformer with the same outputs.

fairseq-train --finetune-from-model and --restore-file read the checkpoint, fairseq-preprocess
--srcdict and --tgtdict the dictionaries.
"""

import argparse
import shlex
import shutil
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.hf_checkpoint import (
    checkpoint,
    dictionary,
    read_json,
    read_weights,
    untrained,
    weight_files,
)
from fairseq_memattn.cli.shared.inputs import refuse_unused, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, say, write_checkpoint
from fairseq_memattn.errors import MemAttnError

PARTS = {"cfg", "model_is_namespace", "dictionaries", "names", "constants", "lost"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("folder", "folder that `memattn export` has written, or of a translator", type=Path)
    add.file("--output", "checkpoint to write", required=True)
    add.file(
        "--dictionaries",
        "new folder for the dictionaries, with fairseq's names, and a translator's SentencePiece "
        "models",
        required=True,
        metavar="FOLDER",
    )
    for side in ("source", "target"):
        add(
            f"--{side}-lang",
            f"{side} language of a translator, by its name in the model, such as en, en_XX or "
            "eng_Latn (default: that of a Marian folder)",
            metavar="LANG",
        )


def run(args: argparse.Namespace) -> None:
    files = weight_files(args.folder)
    check_outputs({"--output": args.output}, [args.folder, *files])
    from fairseq_memattn.export.new_folder import check_new

    check_new(args.dictionaries, "--dictionaries")
    if (args.folder / "fairseq.json").is_file():
        refuse_unused(args, ["source_lang", "target_lang"], "is for a translator of transformers")
        import_exported(args, files)
    else:
        import_translator(args, files)


def import_exported(args: argparse.Namespace, files: list[Path]) -> None:
    file = args.folder / "fairseq.json"
    content = read_json(file)
    check(file, content)
    from fairseq_memattn.export import way_back
    from fairseq_memattn.export.new_folder import new_folder

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


def import_translator(args: argparse.Namespace, files: list[Path]) -> None:
    from fairseq_memattn.cli.shared import translator_vocabularies
    from fairseq_memattn.export.new_folder import new_folder
    from fairseq_memattn.models import hf_translators
    from fairseq_memattn.models.abc_transformer import PretrainedTransformer
    from fairseq_memattn.models.hf_checks import check_sizes

    config = read_json(args.folder / "config.json")
    hf_translators.kind_of(config)
    languages = [args.source_lang, args.target_lang]
    sides = translator_vocabularies.read(args.folder, config, languages)
    for side in sides:
        require_file("the SentencePiece model", side.pieces)
    saved = read_weights(files)
    check_sizes(config, hf_translators.sizes(saved))
    tables = hf_translators.tables(saved, config)
    pairs = zip(sides, tables, strict=True)
    found = [hf_translators.symbols(side.ids, config, len(table)) for side, table in pairs]
    weights = hf_translators.weights(saved, config, [rows for _, rows in found])
    flags = hf_translators.options(config, hf_translators.has_bias(saved, config))
    flags += hf_translators.task_flags(
        [side.language for side in sides], [side.token for side in sides]
    )
    words = [dictionary(names) for names, _ in found]
    state = checkpoint(PretrainedTransformer, flags, weights, *words)
    with new_folder(args.dictionaries, "--dictionaries") as unfinished:
        for side, (names, _) in zip(sides, found, strict=True):
            # The task adds the separator of sentences, which has the last row.
            saved_names = names[:-1] if side.token else names
            dictionary(saved_names).save(str(unfinished / f"dict.{side.language}.txt"))
            shutil.copyfile(side.pieces, unfinished / f"spm.{side.language}.model")
        write_checkpoint(state, args.output)
    count = sum(weight.numel() for weight in set(weights.values()))
    print(f"imported {count} weights: {args.output}")
    unused = max(sum(name.startswith("madeupword") for name in names) for names, _ in found)
    if unused:
        say(f"{unused} symbols are not in text, as they have no name that a dictionary can hold")
    print(f"dictionaries and SentencePiece models: {args.dictionaries}")
    print(f"to train it: --finetune-from-model {args.output} {shlex.join(flags)}")
