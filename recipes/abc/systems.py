"""What a control needs beside its slots: its architecture, and the stride of global tokens."""

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


def cells(cross: list[int], causal: list[int]) -> list[str]:
    """The systems of a grid of slots."""
    return [f"abc-{slots}-{few}" for slots in cross for few in causal]
