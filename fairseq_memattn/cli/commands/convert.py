"""`memattn convert`: converts a trained model to another attention, to start finetuning from it.

The ABC paper warm-starts its masked language models from softmax attention (section 5.3), and T2R
(Kasai et al., 2021) its transformers; GMAT starts from BERT (section 4.2). Weights that the new
attention adds, of the control or the memory, are initialised as in a new model; all others are
copied. Low-rank updates are merged if the new model has none. With --context-separator, a
translator of sentences becomes one of documents.
"""

import argparse
import shlex
from copy import deepcopy
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.model_flags import training_flags
from fairseq_memattn.cli.shared.models import check_paths, kind_of, open_checkpoint
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, write_checkpoint
from fairseq_memattn.errors import flag, like
from fairseq_memattn.host.checkpoints import architecture

OF_SYMBOLS = (  # a row for each symbol of a dictionary
    *("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    *("decoder.output_projection.weight", "decoder.output_projection.bias"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser)
    add("data", "folder made by fairseq-preprocess; its dictionaries are the model's")
    add("--path", "trained checkpoint", required=True, metavar="FILE")
    add("--arch", "architecture to convert to, e.g. t2r_transformer", required=True)
    add.file(
        "--output",
        "checkpoint to write, for fairseq-train's --finetune-from-model; an existing file is "
        "replaced",
        required=True,
    )
    add(
        "--context-separator",
        "make a model of --task translation one of document_translation, with this symbol between "
        "two sentences (such as _eos); if it is new, its weights are those of the end of sentence",
        metavar="SYMBOL",
    )
    add("--seed", "seed of the new weights (default: %(default)s)", type=int, default=1)
    add(
        "--flags",
        "the --abc-* and --gmat-* flags of the new architecture, in one string with an equals "
        "sign before it, e.g. --flags='--abc-cross-slots 64 --abc-causal-slots 32'",
        default="",
        metavar="FLAGS",
    )


def run(args: argparse.Namespace) -> None:
    import fairseq_memattn

    check_outputs({"--output": args.output}, [Path(args.path)])
    check_paths(args.data, args.path)
    state, task = open_checkpoint(args.path, args.data)
    old = architecture(state)
    if args.context_separator:
        task = add_separator(state, task, args.context_separator)
    new = converted(state, task, args.arch, shlex.split(args.flags), args.seed)
    model, *others = training_flags(args.arch, state["cfg"])
    left_out = ["--finetune-from-model"]
    if not state["optimizer_history"][-1]["criterion_name"]:  # imported, and not trained here
        left_out += ["--criterion", "--lr-scheduler"]
    others = [option for option in others if option.split(" ")[0] not in left_out]
    write_checkpoint(state, args.output)
    print(f"converted {old} to {args.arch}: {args.output}")
    print(f"new weights, to be trained: {', '.join(new) or 'none'}")
    print(f"to train it, with the other flags of the training of {args.path}:")
    user_dir = args.user_dir or fairseq_memattn.__path__[0]
    start = ["fairseq-train", args.data, "--user-dir", user_dir]
    start += ["--finetune-from-model", str(args.output)]
    print(" \\\n  ".join(filter(None, [shlex.join(start), model, " ".join(others)])))


def converted(
    state: dict[str, Any], task: Any, arch: str, flags: list[str], seed: int
) -> list[str]:
    """Makes the checkpoint `state` one of `arch`. Returns the names of the weights that are new.

    task: the checkpoint's, as `open_checkpoint` gives it
    """
    import torch
    from omegaconf import OmegaConf

    from fairseq_memattn.modules.low_rank import fit_updates

    check_kind(str(architecture(state)), arch)
    model_args = with_architecture(state["cfg"]["model"], arch, flags)
    trained = state["model"]
    # Older releases of fairseq gave some weights other names.
    task.build_model(deepcopy(state["cfg"]["model"])).upgrade_state_dict(trained)
    torch.manual_seed(seed)
    model = task.build_model(model_args)
    weights = model.state_dict()
    fit_updates(trained, weights)
    if hasattr(model, "weights_from"):
        trained = model.weights_from(trained)
    if getattr(model_args, "gmat_sparsity", None) == "lsh":
        raise ValueError(
            "--gmat-sparsity lsh uses queries as keys, so it cannot take a checkpoint's keys"
        )
    for name, weight in trained.items():
        if name not in weights:
            raise ValueError(
                f"--path: {architecture(state)} has the weight `{name}`, but --arch {arch} lacks "
                "it; a conversion begins with softmax attention, or with the same control"
            )
        if weights[name].shape != weight.shape:
            raise ValueError(
                f"`{name}` is {tuple(weight.shape)} in the checkpoint, but "
                f"{tuple(weights[name].shape)} in --arch {arch}"
            )
    new = [name for name in weights if name not in trained]
    state["model"] = weights | trained
    state["cfg"] = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    state["cfg"]["model"], state["args"] = model_args, None
    state.pop("last_optimizer_state", None)
    return new


def add_separator(state: dict[str, Any], task: Any, symbol: str) -> Any:
    """Makes the task of a checkpoint document_translation, and returns it with its dictionaries.

    task: the checkpoint's, as `open_checkpoint` gives it
    Raises ValueError for a model of another task than translation.
    """
    import torch
    from fairseq.tasks import setup_task
    from omegaconf import OmegaConf, open_dict

    settings = state["cfg"]["task"]
    if settings["_name"] != "translation":
        raise ValueError(
            f"--context-separator is for a model of --task translation, but --path was trained "
            f"with --task {settings['_name']}"
        )
    values: Any = OmegaConf.to_container(settings, resolve=True, enum_to_str=True)
    changed = {"_name": "document_translation", "context_separator": symbol}
    with open_dict(state["cfg"]):
        state["cfg"]["task"] = values | changed
    made = setup_task(state["cfg"]["task"], from_checkpoint=True)
    for name in OF_SYMBOLS:
        source = name.startswith("encoder.")
        dictionary = made.source_dictionary if source else made.target_dictionary
        weight = state["model"].get(name)
        if weight is not None and len(weight) < len(dictionary):
            state["model"][name] = torch.cat([weight, weight[dictionary.eos()][None]])
    return made


def check_kind(old: str, new: str) -> None:
    from fairseq.models import ARCH_MODEL_REGISTRY

    if new not in ARCH_MODEL_REGISTRY:
        raise ValueError(
            f"--arch {new} is not registered{like(new, ARCH_MODEL_REGISTRY)}; --user-dir must be "
            "the folder that registers it"
        )
    # One encoder-decoder has the weights of an encoder.
    wanted = getattr(ARCH_MODEL_REGISTRY[new], "starts_from", kind_of(new))
    if kind_of(old) != wanted and ARCH_MODEL_REGISTRY[old] is not ARCH_MODEL_REGISTRY[new]:
        raise ValueError(f"--path: {old} is {kind_of(old)}, but --arch {new} is {kind_of(new)}")


def with_architecture(model: Any, arch: str, flags: list[str]) -> argparse.Namespace:
    """The options of a checkpoint's model, of another architecture and with its flags."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    fields = dict(vars(model) if isinstance(model, argparse.Namespace) else model)
    parser = argparse.ArgumentParser(
        prog="memattn convert",
        usage=f"memattn convert ... --arch {arch} --flags=FLAGS",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    for action in parser._actions:  # fairseq's defaults must not replace the checkpoint's values
        action.default = argparse.SUPPRESS
    given = vars(parser.parse_args(flags))
    sizes = [name for name in given if not name.startswith(("abc_", "gmat_"))]
    if sizes:
        raise ValueError(
            f"--flags may have only --abc-* and --gmat-*, but has {flag(sizes[0])}, which is the "
            "checkpoint's"
        )
    args = argparse.Namespace(**fields | given | {"arch": arch, "_name": arch})
    ARCH_CONFIG_REGISTRY[arch](args)
    return args
