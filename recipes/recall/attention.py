"""The flags of a system of associative recall."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "abc"))
from systems import architecture, spread  # noqa: E402


def flags(attention: str, longest: int) -> list[str]:
    """The architecture and its layers. Raises ValueError for another attention.

    longest: symbols of the longest test
    """
    activation: list[str] = []
    if found := re.fullmatch("(mlp-[0-9]+)-(sigmoid|relu)", attention):
        attention, activation = found[1], ["--abc-activation", found[2]]
    if attention == "softmax-only":
        return ["--arch", "transformer_lm", "--decoder-layers", "2"]
    alone = attention.endswith("-only")
    names = [attention.removesuffix("-only")] if alone else attention.split("+")
    layers, own = ([] if alone else ["window:2"]), []
    for name in names:
        layer, options = entry(name, longest)
        layers.append(layer)
        own += options
    if len(names) > 1:
        if "--abc-stride" in own:
            raise ValueError(
                "global and local_global have one stride for the whole model: no other layer"
            )
        own += ["--abc-phi-layers", "separate"]
    depth = 2 if alone else len(layers)
    arch = ["--arch", "abc_mlp_transformer_lm", "--abc-causal-layers", ",".join(layers)]
    positions = [] if alone else ["--no-token-positional-embeddings"]
    return [*arch, *positions, *activation, *own, "--decoder-layers", str(depth)]


def entry(name: str, longest: int) -> tuple[str, list[str]]:
    """A layer for --abc-causal-layers, and the flags of its control."""
    if name == "softmax":
        return name, []
    found = re.fullmatch("([a-z][a-z0-9_]*)-([1-9][0-9]*)", name)
    if found is None:
        raise ValueError(f"{name} is no attention: softmax or CONTROL-SLOTS")
    control, slots = found[1], int(found[2])
    architecture(control, "transformer_lm", slots)
    options = spread(control, slots, longest)
    if control in ("linformer", "compressive"):
        options = ["--abc-max-length", str(longest)]
    return f"{control}:{slots}", options
