"""`--abc-causal-layers`: another attention in each layer."""

from typing import NamedTuple

from fairseq_memattn.attention.controls import control_class
from fairseq_memattn.attention.controls.registry import all_controls
from fairseq_memattn.errors import MOST_VECTORS, MemAttnError

FLAG = "--abc-causal-layers"
SOFTMAX = "softmax"


class LayerAttention(NamedTuple):
    """The attention of a layer: a control and its slots. None is that of the model's flags."""

    control: str | None
    slots: int | None  # 0 is softmax attention


BY_FLAGS = LayerAttention(None, None)


def attention_of_layers(text: str) -> list[LayerAttention]:
    """Reads "window:8,mlp,softmax": CONTROL, CONTROL:SLOTS or softmax, with commas between them.

    Raises MemAttnError, which names the flag and the entry.
    """
    return [_attention(entry.strip()) for entry in text.split(",")]


def controls_of_layers(text: str) -> list[str]:
    """The names of the controls in the text, each once; none in an empty text."""
    entries = attention_of_layers(text) if text else []
    return list(dict.fromkeys(entry.control for entry in entries if entry.control))


def check_layers(text: str, layers: int, slots: int) -> None:
    """Raises MemAttnError for a text that is wrong, or has no whole number of turns.

    layers: of the decoder; slots: of a control without a number
    """
    entries = attention_of_layers(text)
    if slots == 0 and any(entry == LayerAttention(entry.control, None) for entry in entries):
        raise MemAttnError(
            f"{FLAG} must have slots for every control, such as mlp:8, because "
            "--abc-causal-slots is 0"
        )
    if layers % len(entries):
        raise MemAttnError(
            f"{FLAG} must have as many entries as there are --decoder-layers, or a divisor of "
            f"them, after which it begins again; but it has {len(entries)} for {layers} layers"
        )


def _attention(entry: str) -> LayerAttention:
    name, colon, number = entry.partition(":")
    if name == SOFTMAX and not colon:
        return LayerAttention(None, 0)
    if name not in all_controls():
        raise MemAttnError(
            f"{FLAG} must have {SOFTMAX}, CONTROL or CONTROL:SLOTS for each layer, with commas "
            f"between them, where CONTROL is one of {', '.join(all_controls())}; but it has "
            f"{entry!r}"
        )
    refusal = control_class(name).causal_refusal
    if refusal:
        raise MemAttnError(f"{FLAG} must not have the control {name}: {refusal}")
    if not colon:
        return LayerAttention(name, None)
    if not (number.isascii() and number.isdecimal() and 1 <= int(number) <= MOST_VECTORS):
        raise MemAttnError(
            f"{FLAG} must have numbers of slots from 1 to {MOST_VECTORS}, but has {entry!r}"
        )
    return LayerAttention(name, int(number))
