"""What a control needs beside its slots: its architecture, and the stride of global tokens."""

from pathlib import Path

import yaml

from fairseq_memattn.attention.controls import CONTROLS

KERNELS = ("elu", "rfa", "t2r")


def architecture(control: str, model: str, causal: int) -> str:
    """A model with a control of docs/controls.md, abc for ABC-MLP. Raises ValueError for another.

    causal: slots of causal attention, which `workspace` does not have
    """
    names = {"abc": "abc_mlp"} | {name: f"abc_{name}" for name in CONTROLS}
    names |= {name: name for name in KERNELS}
    if control not in names:
        raise ValueError(f"the control must be one of {', '.join(names)}, but is {control}")
    if control == "workspace" and causal:
        raise ValueError("the control workspace has no causal form")
    return f"{names[control]}_{model}"


def spread(control: str, slots: int, length: int) -> list[str]:
    """The flags by which global tokens are spread over so many tokens."""
    if control not in ("global", "local_global"):
        return []
    local = slots - slots // 2 if control == "local_global" else 0  # for the last tokens
    positions = slots - local
    if not positions:
        raise ValueError(f"{control} needs two slots or more")
    stride = ["--abc-stride", str(-(-length // positions))]
    return stride + (["--abc-local-window", str(local)] if local else [])


# Controls as the paper has them, where that is not the default.
OF_PAPER = {
    "linformer": ("linformer_init", "paper"),
    "random": ("random_draw", "step"),
    "clustering": ("cluster_bits", "63"),
}


def paper(control: str) -> list[str]:
    """The overrides for a control of the paper."""
    return [f"+model.abc_{'='.join(OF_PAPER[control])}"] if control in OF_PAPER else []


def paper_flags(control: str) -> list[str]:
    """The same as flags."""
    option, value = OF_PAPER.get(control, ("", ""))
    return [f"--abc-{option.replace('_', '-')}", value] if option else []


def parts(folder: str, count: int) -> str:
    """The folders of a corpus in shards, of which fairseq reads one in an epoch."""
    return ":".join(f"{folder}/{number}" for number in range(count))


def split(recipe: str, processes: int) -> list[str]:
    """The overrides for so many processes, of which an update has as many tokens as of one.

    Raises ValueError where they cannot share the batches of an update.
    """
    path = Path(__file__).parent / f"{recipe}.yaml"
    (batches,) = yaml.safe_load(path.read_text(encoding="utf-8"))["optimization"]["update_freq"]
    if batches % processes:
        raise ValueError(f"{processes} processes cannot share the {batches} batches of {recipe}")
    return [
        f"distributed_training.distributed_world_size={processes}",
        f"optimization.update_freq=[{batches // processes}]",
    ]


def cells(cross: list[int], causal: list[int]) -> list[str]:
    """The systems of a grid of slots."""
    return [f"abc-{slots}-{few}" for slots in cross for few in causal]
