"""The flags of a system of associative recall."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "abc"))
from systems import architecture, spread  # noqa: E402

TOP = {f"top{count}": ["--abc-top-k", str(count)] for count in (1, 4)}
VARIANTS = {
    "mlp": {name: ["--abc-activation", name] for name in ("sigmoid", "relu")},
    "routed": TOP,
    "routed_gated": TOP,
    "local_mlp": {"near": ["--abc-sink-tokens", "0", "--abc-local-window", "4"]},
}


def flags(attention: str, longest: int) -> list[str]:
    """The architecture and its layers. Raises ValueError for another attention.

    longest: symbols of the longest test
    """
    variant: list[str] = []
    found = re.fullmatch("(([a-z_]+)-[0-9]+)-([a-z0-9]+)", attention)
    if found and found[3] in VARIANTS.get(found[2], {}):
        attention, variant = found[1], VARIANTS[found[2]][found[3]]
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
    return [*arch, *positions, *variant, *own, "--decoder-layers", str(depth)]


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
