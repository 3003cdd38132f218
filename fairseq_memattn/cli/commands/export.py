"""Write a trained model in transformers' format: weights, configuration, tokenizer, model card.

  memattn export --path checkpoint_best.pt --data data/bin --output FOLDER --check 10

Then, without fairseq:

  import fairseq_memattn.transformers
  AutoModelForSeq2SeqLM.from_pretrained("FOLDER"), AutoTokenizer.from_pretrained("FOLDER")

The folder appears when everything is written and checked. A causal model that is in this format
already, such as `convert-transformers` writes, gets source files or ONNX graphs in a new folder:

  memattn export --path FOLDER --output NEW --self-contained
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from fairseq_memattn.cli.shared import models
from fairseq_memattn.cli.shared.inputs import check_given, refuse_unused, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.errors import LARGEST, MemAttnError, check_least
from fairseq_memattn.files import write_json
from fairseq_memattn.host.installation import require_fairseq

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from fairseq_memattn.export.prepared import Segmented

LIMIT = 1e-5  # of the difference of logits in float32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("--path", "checkpoint, or folder of a causal model in transformers' format", required=True)
    add("--data", "folder made by fairseq-preprocess, with the dictionaries; of a checkpoint")
    add.file("--output", "new folder to write", required=True, metavar="FOLDER")
    add.file(
        "--tokenizer",
        "what segmented the data: a SentencePiece model, codes of subword-nmt (one file, or "
        "one of the source and one of the target), GPT-2's encoder.json and vocab.bpe, or `words` "
        "(default: what `memattn prepare` has recorded beside --data, or the one *.model there)",
        nargs="+",
    )
    add.switch("--moses", "with --tokenizer: the data were tokenised with Moses' rules before")
    add.file(
        "--score-file",
        "scores for the model card, as `memattn score --json`, `memattn perplexity --json` or "
        "sacrebleu writes them; can be repeated",
        action="append",
        default=[],
    )
    add.number(
        "--check",
        "compare the logits of both models on N batches of the data, and write nothing if "
        "they differ",
    )
    add.switch(
        "--self-contained",
        "write the source files too, so that transformers loads the folder with "
        "trust_remote_code=True where fairseq-memattn is not installed",
    )
    parser.add_argument(
        *("--original", "--marian"),
        action="store_true",
        help="write the folder of Marian, M2M-100, NLLB or mBART-50 that transformers reads "
        "without code of this package; for a model with softmax attention that `memattn "
        "import-transformers` has read from one",
    )
    add("--subset", "split for --check (default: valid, or test without it)")
    add(
        "--limit",
        "largest difference of logits that --check accepts (default: %(default)s)",
        type=float,
        default=LIMIT,
    )
    add.switch(
        "--onnx",
        "also write encoder.onnx, step.onnx and onnx.json, with which OnnxDecoder decodes "
        "without torch; needs the packages onnx and onnxscript",
    )


def run(args: argparse.Namespace) -> None:
    if Path(args.path).is_dir():
        run_folder(args)
        return
    require_fairseq("the command with a checkpoint")
    import fairseq_memattn

    fairseq_memattn.register()
    if args.data is None:
        require_file("--path", Path(args.path))
        raise ValueError("--data is missing, which a checkpoint needs")
    check(args)
    from transformers.utils.logging import disable_progress_bar

    from fairseq_memattn.attention.nn.low_rank import merge_updates
    from fairseq_memattn.export import comparison, folder
    from fairseq_memattn.export.converters import converted
    from fairseq_memattn.export.new_folder import check_new, new_folder
    from fairseq_memattn.export.prepared import given
    from fairseq_memattn.export.self_contained import write_sources
    from fairseq_memattn.export.task_tokenizer import suffixes, tokenizer
    from fairseq_memattn.host.checkpoints import architecture
    from fairseq_memattn.onnx import onnx_export

    if not sys.stderr.isatty():
        disable_progress_bar()
    check_new(args.output)
    scores = read_scores(args.score_file)
    segmented = given(args.tokenizer, args.moses) if args.tokenizer else None
    state, task = models.open_checkpoint(args.path, args.data)
    if models.kind_of(str(architecture(state))) == models.TRANSLATION_MODEL:
        models.check_plain_inputs(args.path, task)
    if args.check:
        comparison.load(task, args.subset)  # one that the data lack is an error before the work
    model = models.load_model(args.path, args.data, state, task).float().eval()
    merge_updates(model)
    if args.original:
        write_original(args, model, task, segmented)
        return
    made = converted(model, task)
    if args.onnx:
        onnx_export.check(made)
    kind = folder.kind_of(model, made)
    segmented = segmented or found_segmentation(args, suffixes(task, kind == "seq2seq"))
    folder.set_generation(made, model, task.target_dictionary)
    folder.set_translation(made, model, task)
    with new_folder(args.output) as unfinished, TemporaryDirectory() as files:
        names = folder.save_weights(made, unfinished)
        write_way_back(args, state, model, task, names, unfinished)
        words = tokenizer(task, kind, segmented, Path(files), folder.longest_input(model))
        words.save_pretrained(unfinished)
        text = model_card(args, state, task, made, kind, scores)
        (unfinished / "README.md").write_text(text, encoding="utf-8")
        if args.self_contained:
            write_sources(unfinished, made, words)
        if args.onnx:
            onnx_export.write_onnx(cast(Any, made), unfinished)
        if args.check:
            compare(args, model, type(made).from_pretrained(unfinished), task)
    count = sum(weight.numel() for weight in made.parameters())
    print(f"exported {count:,} weights of a {type(made).__name__}: {args.output}")


def run_folder(args: argparse.Namespace) -> None:
    """Writes the folder of a causal model again, with source files or ONNX graphs."""
    given = argparse.Namespace(**vars(args) | {"score_file": args.score_file or None})
    names = ("data", "tokenizer", "moses", "score_file", "check", "subset", "original")
    refuse_unused(given, names, "is for a checkpoint, but --path is a folder")
    if not (args.self_contained or args.onnx):
        raise ValueError(
            f"--path {args.path} is in transformers' format; give --self-contained or --onnx"
        )
    from fairseq_memattn.cli.shared.causal_models import load_causal
    from fairseq_memattn.export.new_folder import check_new, new_folder
    from fairseq_memattn.export.self_contained import write_sources
    from fairseq_memattn.onnx import onnx_export

    check_new(args.output)
    model, tokenizer = load_causal(Path(args.path), "cpu")
    if args.onnx:
        onnx_export.check(model)
    with new_folder(args.output) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        if args.self_contained:
            write_sources(unfinished, model, tokenizer)
        if args.onnx:
            onnx_export.write_onnx(model, unfinished)
    print(f"exported a {type(model).__name__}: {args.output}")


def write_original(
    args: argparse.Namespace, model: Any, task: Any, segmented: "Segmented | None"
) -> None:
    from fairseq_memattn.export import translator_folder
    from fairseq_memattn.export.new_folder import new_folder
    from fairseq_memattn.export.task_tokenizer import suffixes

    segmented = segmented or found_segmentation(args, suffixes(task, translates=True))
    with new_folder(args.output) as unfinished:
        name, count = translator_folder.write(model, task, segmented, unfinished)
    print(f"exported {count:,} weights of a {name}: {args.output}")


def write_way_back(
    args: argparse.Namespace,
    state: dict[str, Any],
    model: Any,
    task: Any,
    names: list[str],
    unfinished: Path,
) -> None:
    """Writes fairseq.json, with which `memattn import-transformers` reads the folder."""
    from fairseq_memattn.export import way_back

    data = Path(args.data.split(":")[0])
    content = way_back.record(state, model, task, data, names)
    write_json(unfinished / way_back.FILE, content)
    if content["lost"]:
        say(
            "warning: import-transformers cannot read the folder, as transformers' model keeps "
            f"{', '.join(content['lost'])} in another form"
        )


def check(args: argparse.Namespace) -> None:
    models.check_paths(args.data, args.path, one_model=True)
    check_given(args, ["check"], 1, LARGEST)
    check_least(args, "limit", 0)
    if args.check is None:
        unlimited = argparse.Namespace(subset=args.subset, limit=args.limit != LIMIT)
        refuse_unused(unlimited, ("subset", "limit"), "is for --check, which is not given")
    if args.original:
        unused = ("check", "onnx", "self_contained")
        refuse_unused(args, unused, "does not work with --original")
    if not args.tokenizer:
        refuse_unused(args, ["moses"], "is for --tokenizer, which is not given")
    for path in args.score_file:
        require_file("--score-file", path)


def read_scores(paths: list[Path]) -> list[list[str]]:
    from fairseq_memattn.export.model_card import score_rows
    from fairseq_memattn.files import read_json

    rows = []
    for path in paths:
        rows += score_rows(path, read_json(path))
    return rows


def found_segmentation(args: argparse.Namespace, suffixes: dict[str, str]) -> "Segmented":
    """The segmentation beside the data; prints what it is."""
    from fairseq_memattn.export.prepared import find

    found = find(Path(args.data.split(":")[0]), suffixes)
    files = ", ".join(map(str, found.files()))
    moses = ", after Moses' tokenisation" if found.moses else ""
    print(f"tokenizer: {found.kind}{moses}{f', from {files}' if files else ''}")
    return found


def model_card(
    args: argparse.Namespace,
    state: dict[str, Any],
    task: Any,
    made: "PreTrainedModel",
    kind: str,
    scores: list[list[str]],
) -> str:
    from fairseq_memattn import __version__
    from fairseq_memattn.cli.shared.model_flags import training_flags
    from fairseq_memattn.export.model_card import Facts, card, recorded_languages
    from fairseq_memattn.export.task_tokenizer import suffixes
    from fairseq_memattn.host.checkpoints import architecture

    arch = str(architecture(state))
    sizes = {"source": len(task.source_dictionary)}
    if kind == "seq2seq":
        sizes["target"] = len(task.target_dictionary)
    translated = suffixes(task, kind == "seq2seq") if hasattr(task, "src_dict") else {}
    recorded = recorded_languages(Path(args.data.split(":")[0]))
    facts = Facts(
        name=args.output.name,
        arch=arch,
        kind=kind,
        version=__version__,
        flags=training_flags(arch, state["cfg"]),
        data=args.data,
        languages=[*translated.values()] or recorded,
        dictionaries=sizes,
        scores=scores,
    )
    return card(made, facts)


def compare(args: argparse.Namespace, model: Any, made: "PreTrainedModel", task: Any) -> None:
    """Prints how much the models differ. Raises MemAttnError if it is more than --limit."""
    from fairseq_memattn.export import comparison

    found = comparison.compare(model, made, task, args.subset, args.check)
    said = (
        f"the logits of {found.tokens:,} tokens differ by at most {found.logits:.2g}, and "
        f"{found.others:,} tokens have another most likely symbol"
    )
    if not found.logits <= args.limit:  # NaN compares as False
        raise MemAttnError(f"--check: {said}; the largest difference must be --limit {args.limit}")
    print(f"check: {said}")
