"""A pretrained decoder of transformers with a bounded memory in the place of softmax attention."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.networks.decoder import SOFTMAX
from fairseq_memattn.transformers.decoder import (
    SIZES,
    BoundedDecoderConfig,
    BoundedDecoderForCausalLM,
)

# The types of models that have the decoder's shape, and what it must be told of each.
SHAPES: dict[str, dict[str, Any]] = {
    **{"llama": {}, "mistral": {}},
    **{"qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}},
}
BIASES = ("attention_bias", "mlp_bias")
# Those of the other types depend on the length of the text.
FIXED_ROTARY = ("default", "linear", "llama3", "yarn", "proportional")
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")


@torch.no_grad()
def convert(
    teacher: PreTrainedModel, control: Mapping[str, Any] | str, layers: Collection[int]
) -> BoundedDecoderForCausalLM:
    """The decoder with the weights of a model of Llama's, Mistral's, Qwen2's or Qwen3's shape.

    control: the arguments `control`, `slots` and others of `ABCAttention`, or "softmax", of the
        layers with these numbers, from 0. The others keep their attention, a window or softmax
        attention

    What the control adds has its first weights.

    Raises MemAttnError for a model of another shape, and for layers that it does not have.
    """
    config: Any = teacher.config
    _check(config)
    number = config.num_hidden_layers
    unknown = set(layers) - set(range(number))
    if unknown:
        raise MemAttnError(
            f"the model has the layers 0 to {number - 1}, but layer {min(unknown)} is asked for"
        )
    sizes = {name: getattr(config, name) for name in SIZES if hasattr(config, name)}
    given = BoundedDecoderConfig(
        **sizes | SHAPES[config.model_type] | {name: getattr(config, name) for name in TOKENS},
        **_rotary(teacher),
        controls=[control if i in layers else _own(config, i) for i in range(number)],
    )
    student: Any = BoundedDecoderForCausalLM(given)
    student.to(device=teacher.device, dtype=teacher.dtype)
    weights = {k.replace(".o_proj.", ".out_proj."): w for k, w in teacher.state_dict().items()}
    # YaRN multiplies queries and keys beside turning them.
    scale = float(teacher.model.rotary_emb.attention_scaling) ** 2
    of_queries = ".q_norm." if given.qk_norm else ".q_proj."
    weights |= {name: w * scale for name, w in weights.items() if of_queries in name}
    missing, unexpected = student.load_state_dict(weights, strict=False)
    left = unexpected + [name for name in missing if ".control." not in name]
    if left:
        raise MemAttnError(f"the model does not have the shape of its type: {', '.join(left)}")
    student.generation_config = teacher.generation_config
    return student.eval()


def _check(config: Any) -> None:
    if config.model_type not in SHAPES:
        raise MemAttnError(
            f"the type of the model must be one of {', '.join(SHAPES)}, but is {config.model_type}"
        )
    for name in BIASES:
        if getattr(config, name, False):
            raise MemAttnError(f"`{name}` of the model must be false, but is true")


def _rotary(teacher: Any) -> dict[str, Any]:
    """The fields of the configuration that give the model its rotary positions."""
    given, found = teacher.config.rope_parameters, teacher.model.rotary_emb
    kind = given["rope_type"]
    if kind not in FIXED_ROTARY:
        raise MemAttnError(
            f"the rotary positions of the model must be of type {', '.join(FIXED_ROTARY)}, "
            f"but are {kind}, whose angles depend on the length of the text"
        )
    listed = None if kind == "default" else found.inv_freq.tolist()
    return {"rotary_base": given["rope_theta"], "rotary_frequencies": listed}


def _own(config: Any, layer: int) -> dict[str, Any] | str:
    """The attention of a layer of the model itself."""
    window, types = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    if window is None or (types and types[layer] != "sliding_attention"):
        return SOFTMAX
    return {"control": "window", "slots": window}
