"""A pretrained causal model of transformers with a bounded memory, trained to imitate the model.

  memattn convert-transformers FOLDER --control sinks --slots 64 --output NEW

FOLDER has a model of Llama's, Mistral's, Qwen2's or Qwen3's shape, as safetensors or as GGUF, and
its tokenizer. The weights are copied, and each layer gets the control. With --text, two trainings
follow: attention transfer, in which each layer's attention learns the output of the model's for the
same input, and distillation, in which low-rank updates of the projections learn the model's
distribution of the next token. A command that was interrupted goes on when it is given again.
"""

import argparse
import math
import shutil
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.causal_models import load_causal, read_tokens
from fairseq_memattn.cli.shared.inputs import check_given, require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.errors import LARGEST, MemAttnError, flag
from fairseq_memattn.files import read_json, write_json

# What a training that goes on must have been started with.
SETTINGS = """control slots window layers tokens_per_sample batch_size transfer_updates
    distill_updates transfer_rate distill_rate rank seed""".split()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add.file("folder", "folder with the model and its tokenizer", metavar="FOLDER")
    add("--control", "control of the layers, or softmax (default: %(default)s)", default="sinks")
    add.number("--slots", "memory slots of a head (default: %(default)s)", default=64)
    add.number("--window", "of these, for the last tokens, where a control has other slots too")
    add(
        "--layers",
        "the layers that get the control, from 0, such as 0-9,12; the others keep their attention "
        "(default: all)",
    )
    add.file("--output", "new folder to write", required=True, metavar="FOLDER")
    add.file("--text", "UTF-8 text to train on", nargs="+", default=[])
    add.number("--transfer-updates", "of attention transfer (default: %(default)s)", default=0)
    add.number("--distill-updates", "of distillation (default: %(default)s)", default=0)
    add.number("--tokens-per-sample", "tokens of a block (default: %(default)s)", default=512)
    add.number("--batch-size", "blocks of an update (default: %(default)s)", default=1)
    add(
        "--transfer-rate",
        "learning rate of the model's weights (default: %(default)s)",
        type=float,
        default=3e-3,
    )
    add("--distill-rate", "likewise (default: %(default)s)", type=float, default=3e-3)
    add.number("--rank", "of the low-rank updates (default: %(default)s)", default=16)
    add.number("--save-every", "updates (default: %(default)s)", default=100)
    add.number("--seed", "of new weights and batches (default: %(default)s)", default=1)
    add("--device", "such as cpu or cuda (default: cuda if there is a GPU)")


def run(args: argparse.Namespace) -> None:
    check(args)
    from fairseq_memattn.export.new_folder import check_new, new_folder

    check_new(args.output)
    check_control(args)
    work = args.output.with_name(f"{args.output.name}.training")
    check_begun(args, work)
    import torch

    from fairseq_memattn.transformers.conversion import convert

    torch.manual_seed(args.seed)
    teacher, tokenizer = load_causal(args.folder, args.device)
    layers = layers_of(args.layers, teacher.config.num_hidden_layers)
    student = convert(teacher, control_of(args), layers)
    if args.text:
        train(args, work, teacher, student, blocks(args, tokenizer))
    with new_folder(args.output) as unfinished:
        student.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
    if args.text:
        shutil.rmtree(work, ignore_errors=True)
    print(f"converted {len(layers)} of {teacher.config.num_hidden_layers} layers: {args.output}")


def check(args: argparse.Namespace) -> None:
    names = ("slots", "window", "batch_size", "rank", "save_every")
    check_given(args, names, 1, LARGEST)
    check_given(args, ("tokens_per_sample",), 2, LARGEST)
    check_given(args, ("transfer_updates", "distill_updates"), 0, LARGEST)
    for name in ("transfer_rate", "distill_rate"):
        if not 0 < getattr(args, name) < math.inf:
            raise ValueError(f"{flag(name)} must be above 0, but is {getattr(args, name)}")
    for file in args.text:
        require_file("--text", file)
    if bool(args.text) != bool(args.transfer_updates or args.distill_updates):
        raise ValueError("--text needs --transfer-updates or --distill-updates, and these need it")
    if args.control == "softmax" and args.transfer_updates:
        raise ValueError(
            "--transfer-updates trains bounded memories, and --control softmax has none"
        )


def control_of(args: argparse.Namespace) -> dict[str, Any] | str:
    """The arguments of the layers' attention."""
    if args.control == "softmax":
        return "softmax"
    given: dict[str, Any] = {"control": args.control, "slots": args.slots}
    if args.window is not None:
        given["local_window"] = args.window
    if args.control == "local_mlp":
        given["slot_bias"] = -2.0  # slots that know nothing yet take little from the model
    if args.control == "gated":
        given["gate_horizon"] = args.tokens_per_sample
    return given


def check_control(args: argparse.Namespace) -> None:
    """Makes a small layer with the control, before the model is read.

    Raises ValueError for a control that is not causal or has no window of its own, and for sizes
    that it refuses.
    """
    from fairseq_memattn.attention.controls.options import OptionError
    from fairseq_memattn.attention.controls.registry import all_controls
    from fairseq_memattn.attention.nn import ABCAttention

    given = control_of(args)
    if isinstance(given, str):
        return
    causal = [name for name, made in all_controls().items() if not made.causal_refusal]
    if args.control not in causal:
        names = ", ".join(["softmax", *causal])
        raise ValueError(f"--control must be one of {names}, but is {args.control}")
    try:
        ABCAttention(8, 1, causal=True, **given)
    except OptionError as error:
        name = "--window" if error.name == "local_window" else flag(error.name)
        raise ValueError(f"{name} {error.problem}") from error
    except TypeError as error:
        raise ValueError(f"--control {args.control} takes no --window") from error


def layers_of(text: str | None, count: int) -> list[int]:
    """The numbers of ranges such as 0-9,12; all of `count` without a text."""
    if text is None:
        return list(range(count))
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"--layers must be numbers and ranges such as 0-9,12, but is {text}")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers:
            raise ValueError(f"--layers must have ranges that rise, but has {part}")
        found.update(numbers)
    return sorted(found)


def blocks(args: argparse.Namespace, tokenizer: Any) -> list[dict[str, Any]]:
    """The blocks of the text, of which the last may be left out."""
    tokens = read_tokens(args.text, tokenizer)
    size = args.tokens_per_sample
    if len(tokens) < size:
        raise MemAttnError(
            f"--text has {len(tokens)} tokens, but --tokens-per-sample needs {size} of them"
        )
    whole = tokens[: len(tokens) // size * size].split(size)
    say(f"{len(whole)} blocks of {size} tokens")
    return [{"input_ids": block} for block in whole]


def settings(args: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(args, name, None) for name in SETTINGS}
    return given | {"folder": str(args.folder), "text": list(map(str, args.text))}


def check_begun(args: argparse.Namespace, work: Path) -> None:
    """Raises MemAttnError for another folder, and for the checkpoints of other settings."""
    file = work / "settings.json"
    if args.text and work.exists() and not file.is_file():
        raise MemAttnError(f"{work}: is not the folder of a training, whose name --output gives it")
    if not any(work.glob("*/checkpoint-*")):
        return
    before = read_json(file)
    for name, value in settings(args).items():
        if before.get(name) != value:
            raise MemAttnError(
                f"{file}: {name} is {before.get(name)}, but is now {value}; remove the folder "
                f"{work} to begin again"
            )


def train(
    args: argparse.Namespace, work: Path, teacher: Any, student: Any, rows: list[dict[str, Any]]
) -> None:
    """Trains the student, from where an earlier call with the same settings has ended."""
    from fairseq_memattn.transformers import distillation

    work.mkdir(exist_ok=True)
    write_json(work / "settings.json", settings(args))
    if args.transfer_updates:
        say("attention transfer")
        stage = training_arguments(args, work / "transfer")
        distillation.transfer(teacher, student, stage, rows)
    if args.distill_updates:
        say("distillation")
        stage = training_arguments(args, work / "distill")
        distillation.distil(teacher, student, stage, rows, args.rank)


def training_arguments(args: argparse.Namespace, folder: Path) -> Any:
    """Those of a stage, by the name of its folder."""
    import torch
    from transformers import TrainingArguments

    on_cpu = str(args.device).startswith("cpu") or not torch.cuda.is_available()
    return TrainingArguments(
        str(folder),
        max_steps=getattr(args, f"{folder.name}_updates"),
        learning_rate=getattr(args, f"{folder.name}_rate"),
        per_device_train_batch_size=args.batch_size,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        logging_steps=10,
        save_steps=args.save_every,
        save_total_limit=1,
        seed=args.seed,
        use_cpu=on_cpu,
        bf16=not on_cpu,
        remove_unused_columns=False,
        report_to=[],
    )
