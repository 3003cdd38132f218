"""`memattn plot`: draws what a text writes into the memory of a model, and what is read from it.

For a model with a sequence selector, it draws the sentences that each target token attends to. With
--training it draws the progress of trainings.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.shared import segmentation, texts
from fairseq_memattn.cli.shared.inputs import named_file
from fairseq_memattn.cli.shared.models import check_paths, folders, load_model, open_checkpoint
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.errors import flag
from fairseq_memattn.evaluation import training_log
from fairseq_memattn.evaluation.plots import check_format
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.files import replacing, write_json
from fairseq_memattn.host.installation import require_fairseq

if TYPE_CHECKING:
    from fairseq_memattn.attention.nn import ABCAttention
    from fairseq_memattn.evaluation.plots import Memories, Selection

SELECTOR = "selector"
# The options of a picture of a model, with their defaults.
OF_MODELS = {
    **dict.fromkeys(
        ("attention", "subset", "text", "target", "sentencepiece_model", "subword_nmt")
    ),
    **{"layer": -1, "head": 0, "index": 0},
}
# What the two halves of the picture show, by the kind of attention.
LABELS = {
    "cross": (
        "Control vectors: share of each source token in each slot",
        "Attention weight of each slot in the prediction of each target token",
    ),
    "encoder": (
        "Control vectors: share of each token in each slot",
        "Attention weight of each slot for each token",
    ),
    "causal": (
        "Control vectors after the last token: share of each token in each slot",
        "Attention weight of each slot for each token, in the memory right after that token",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser)
    add("data", "folder made by fairseq-preprocess; its dictionaries are the model's", nargs="?")
    add(
        "--path",
        "checkpoint of any model that has a bounded memory, or a sequence selector (T5Mem)",
    )
    add(
        "--training",
        "in place of a model: draw the losses, and BLEU and other measures, in the logs of "
        "fairseq-train (--log-file, or what it has printed), a line for each; without NAME, a log "
        "has the name of its folder, or its own where the folder has several",
        nargs="+",
        metavar="NAME=LOG",
    )
    texts.add_arguments(parser)
    add(
        "--attention",
        f"whose memory to draw, or which sentences T5Mem's {SELECTOR} takes for each target "
        f"token (default: the first of {', '.join((*LABELS, SELECTOR))} that the model has)",
        choices=(*LABELS, SELECTOR),
    )
    add(
        "--layer",
        "layer, from 0, the last one being -1, or `all`, a row each (default: %(default)s)",
        type=_number_or_all,
        default=OF_MODELS["layer"],
        metavar="N",
    )
    add(
        "--head",
        "attention head, each with slots of its own, from 0, the last one being -1, or `all`, "
        "a column each (default: %(default)s)",
        type=_number_or_all,
        default=OF_MODELS["head"],
        metavar="N",
    )
    add("--output", "picture to write, such as a .png, .pdf or .svg", type=Path, required=True)
    add.file("--json", "also write the numbers as JSON")


def _number_or_all(text: str) -> int | None:
    """None for all."""
    try:
        return None if text == "all" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number or all, but is {text}") from None


def run(args: argparse.Namespace) -> None:
    if args.training:
        if args.data or args.path:
            given = args.data or f"--path {args.path}"
            raise ValueError(f"--training draws logs and no model, but {given} was given")
        for name, default in OF_MODELS.items():
            if getattr(args, name) != default:
                raise ValueError(f"{flag(name)} is for a model, but --training draws logs")
        plot_trainings(args)
        return
    require_fairseq("the command with a model")
    from fairseq_memattn.evaluation.fonts import fonts_for
    from fairseq_memattn.evaluation.plots import draw_memories, draw_selection

    check_files(args)
    line, segment = texts.read_line(args), segmentation.segmenter(args)
    task, model, net_input = load(args, line, segment)
    if selects(args, model):
        texts.check_lengths(args, net_input, model.max_positions())
        selection = look_at_selection(args, model, task, net_input)
        title = f"Sentences selected: {texts.title(args)}"
        shown = fonts_for([*selection.sentences, *selection.readers, title])
        with shown, replacing(args.output) as unfinished:
            draw_selection(selection, unfinished, title)
        finish(args, SELECTOR, selection.as_dict())
        return
    kind, attentions = choose_attention(args, model)
    layers = chosen("--layer", args.layer, len(attentions))
    heads = chosen("--head", args.head, attentions[0].num_heads)
    texts.check_lengths(args, net_input, model.max_positions())
    memories = look(model, task, net_input, kind, attentions, layers, heads)
    title = f"{kind.capitalize()} attention's memory: {texts.title(args)}"
    shown = fonts_for([*memories.writers, *memories.readers, title])
    with shown, replacing(args.output) as unfinished:
        draw_memories(memories, LABELS[kind], unfinished, title)
    finish(
        args,
        kind,
        {"writers": memories.writers, "readers": memories.readers, "memories": memories.as_lists()},
    )


def check_files(args: argparse.Namespace) -> None:
    if not args.data or not args.path:
        missing = "--path" if args.data else "the folder of the data"
        raise ValueError(f"{missing} is missing, or --training LOG")
    given = (args.text, args.target, args.sentencepiece_model, args.subword_nmt)
    inputs = [*folders(args.data), Path(args.path), *given]
    check_outputs({"--output": args.output, "--json": args.json}, inputs)
    check_format("--output", args.output)
    check_paths(args.data, args.path, one_model=True)


def load(
    args: argparse.Namespace, line: texts.Line | None, segment: Callable[[str], str]
) -> tuple[Any, Any, dict[str, Any]]:
    """The task, the model, and the model's input for the text, which is checked first."""
    import fairseq_memattn

    fairseq_memattn.register()
    state, task = open_checkpoint(args.path, args.data)
    if line is None:
        net_input = texts.of_subset(args, task)
    else:
        sides = {name.partition(".")[0] for name in state["model"]} & {"encoder", "decoder"}
        net_input = texts.of_line(line, task, state["cfg"].task, sides, segment)
    return task, load_model(args.path, args.data, state, task), net_input


def choose_attention(args: argparse.Namespace, model: Any) -> "tuple[str, list[ABCAttention]]":
    """The kind of `--attention` and its layers, the lowest first."""
    from fairseq_memattn.modules.memories import attentions

    found = attentions(model)
    if not found:
        asked = f" that --attention {args.attention} could draw" if args.attention else ""
        raise ValueError(f"--path {args.path}: the model has no bounded memory{asked}")
    kind = args.attention or next(iter(found))
    if kind not in found:
        raise ValueError(
            f"--attention must be {' or '.join(found)}, where the model has a bounded memory, but "
            f"is {kind}"
        )
    return kind, found[kind]


def chosen(option: str, number: int | None, count: int) -> list[int]:
    """The indices, below `count`, that `--layer` or `--head` selects."""
    if number is None:
        return list(range(count))
    if not -count <= number < count:
        raise ValueError(f"{option} must be from {-count} to {count - 1}, but is {number}")
    return [number % count]


def look(
    model: Any,
    task: Any,
    net_input: dict[str, Any],
    kind: str,
    attentions: "list[ABCAttention]",
    layers: list[int],
    heads: list[int],
) -> "Memories":
    """The control vectors and read weights of the chosen layers and heads for the text."""
    import torch

    from fairseq_memattn.evaluation.plots import Memories
    from fairseq_memattn.modules.memories import memories_of

    found = memories_of(model, net_input, [attentions[layer] for layer in layers])
    writing = torch.stack([memory.writing[heads] for memory in found])
    reading = torch.stack([memory.reading[heads] for memory in found])
    return Memories(layers, heads, *texts.labels(task, net_input, kind), writing, reading)


def selects(args: argparse.Namespace, model: Any) -> bool:
    """Whether the selector is drawn."""
    wanted = args.attention in (None, SELECTOR)
    if wanted and hasattr(getattr(model, "decoder", None), SELECTOR):
        if args.head not in (0, None):
            raise ValueError(f"--head: the {SELECTOR} has no heads, but {args.head} was given")
        return True
    if args.attention == SELECTOR:
        raise ValueError(f"--path {args.path}: the model has no {SELECTOR}")
    return False


def look_at_selection(
    args: argparse.Namespace, model: Any, task: Any, net_input: dict[str, Any]
) -> "Selection":
    """The weight of each sequence in the chosen layers for each target token."""
    import torch

    from fairseq_memattn.evaluation.plots import Selection

    model.eval()
    with torch.no_grad():
        made = model(**net_input)[1]["selection"]
    layers = chosen("--layer", args.layer, len(made))
    _, readers = texts.labels(task, net_input, "cross")
    sentences = texts.sentences(task, net_input)[-made[0].shape[2] :]
    weights = torch.stack([made[layer][0] for layer in layers])
    return Selection(layers if len(made) > 1 else None, sentences, readers, weights)


def finish(args: argparse.Namespace, kind: str, figures: dict[str, Any]) -> None:
    if args.json:
        report = {"path": args.path, "text": texts.title(args), "attention": kind, **figures}
        write_json(args.json, report, indent=None)
    print(f"drew {args.output} of {texts.origin(args)}, --index {args.index}")


def plot_trainings(args: argparse.Namespace) -> None:
    paths = named_logs(args.training)
    check_outputs({"--output": args.output, "--json": args.json}, list(paths.values()))
    check_format("--output", args.output)
    logs = [training_log.read_training_log(name, path) for name, path in paths.items()]
    with replacing(args.output) as unfinished:
        training_log.draw_trainings(logs, unfinished)
    if args.json:
        write_json(args.json, [log._asdict() for log in logs])
    print(table(summary(logs)))
    print(f"drew {args.output}")


def named_logs(given: Sequence[str]) -> dict[str, Path]:
    """The files by their names; a file without one has that of its folder.

    It has its own where several files are of one folder, and where the folder is the root.
    """
    files = [named_file("--training", one) for one in given]
    folders = [path.parent.resolve() for _, path in files]
    paths: dict[str, Path] = {}
    for one, (name, path), folder in zip(given, files, folders, strict=True):
        alone = folders.count(folder) == 1
        name = name or (alone and folder.name) or path.stem
        if not path.is_file():
            raise ValueError(f"--training {one}: there is no file {path}")
        if name in paths:
            raise ValueError(
                f"--training {one}: {name} is the name of {paths[name]} as well; give NAME=LOG"
            )
        paths[name] = path
    return paths


def summary(logs: Sequence[training_log.TrainingLog]) -> list[list[str]]:
    """The last training loss, and the best of each measure of the first validation set."""
    names = list(dict.fromkeys(name for log in logs for name in training_log.measures(log)))
    rows = [["", "updates", "loss in training", "best loss", *(f"best {name}" for name in names)]]
    for log in logs:
        valid = next(iter(log.valid.values()), [])
        ends = [row["num_updates"] for row in [*log.train[-1:], *valid[-1:]]]
        loss = f"{log.train[-1]['loss']:g}" if log.train else ""
        found = [
            training_log.best(valid, "loss", True),
            *(training_log.best(valid, n, "error" in n) for n in names),
        ]
        cells = [f"{pair[0]:g} after {pair[1]}" if pair else "" for pair in found]
        rows.append([log.name, f"{max(ends):.0f}", loss, *cells])
    return rows
