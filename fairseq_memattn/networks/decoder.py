"""A decoder of today, in which each layer has a bounded memory or softmax attention.

Source: Touvron et al., "LLaMA", 2023, section 2.2: RMS norm before each block, SwiGLU, rotary
positions, no biases; grouped queries as in Llama 2. Names of parameters are those of transformers'
Llama, but for `out_proj` of attention.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from fairseq_memattn.attention.controls.base import Shared, positions_of
from fairseq_memattn.attention.controls.softmax import SoftmaxControl
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.ops import check
from fairseq_memattn.attention.ops.rotary import Rotary
from fairseq_memattn.networks.blocks import activation

SOFTMAX = "softmax"
FIRST_AND_LAST = {"control": "sinks", "slots": 64}  # 4 and 60 tokens


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes of a decoder.

    vocab_size: symbols; embed_dim: E
    ffn_dim: inner size of the feed-forward layers; None is 8 E / 3, rounded up to 32s
    layers: their number; heads: H; kv_heads: G, None is H; head_dim: D, None is E / H
    controls: of the layers, the lowest first, beginning again after the last one: the arguments
        `control`, `slots` and others of `ABCAttention`, or "softmax" for softmax attention.
        `rotary=False` among them leaves rotary positions out of a layer
    rotary: the rotary positions; None has none
    qkv_bias: whether queries, keys and values have biases, as in Qwen2
    qk_norm: whether queries and keys are normalised, as in Qwen3
    tied: whether the embeddings are the output projection too
    dropout: of embeddings and of the outputs of blocks; attention_dropout: of attention
    max_positions: the longest sequence, for controls that need to know it
    deviation: of the first weights

    Raises ValueError for a size out of range, and for controls that are not mappings.
    """

    vocab_size: int
    embed_dim: int = 512
    ffn_dim: int | None = None
    layers: int = 8
    heads: int = 8
    kv_heads: int | None = None
    head_dim: int | None = None
    controls: tuple[Mapping[str, Any] | str, ...] = (FIRST_AND_LAST,)
    rotary: Rotary | None = field(default_factory=Rotary)
    activation: str = "silu"
    norm_epsilon: float = 1e-6
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    max_positions: int = 2048
    deviation: float = 0.02

    def __post_init__(self) -> None:
        names = ("vocab_size", "embed_dim", "inner_dim", "layers", "heads")
        check.sizes(**{name: getattr(self, name) for name in names})
        check.dropout(self.dropout)
        if not self.controls:
            raise ValueError("`controls` must name the control of one layer at least.")
        for entry in self.controls:
            if entry != SOFTMAX and not (isinstance(entry, Mapping) and "control" in entry):
                raise ValueError(
                    f"`controls` must have {SOFTMAX!r} or the arguments of a layer for each layer, "
                    f"such as {{'control': 'window', 'slots': 64}}, but has {entry!r}."
                )

    @property
    def inner_dim(self) -> int:
        """The inner size of the feed-forward layers."""
        return 32 * -(-8 * self.embed_dim // 96) if self.ffn_dim is None else self.ffn_dim

    def attention(self, layer: int) -> ABCAttention:
        """The attention of a layer, from 0."""
        entry = self.controls[layer % len(self.controls)]
        given = {"control": SoftmaxControl()} if isinstance(entry, str) else dict(entry)
        # JSON has no tuples.
        given = {k: tuple(x) if isinstance(x, list) else x for k, x in given.items()}
        attention = ABCAttention(
            *(self.embed_dim, self.heads),
            causal=True,
            num_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            qk_norm=self.qk_norm,
            rotary=self.rotary if given.pop("rotary", True) else None,
            dropout=self.attention_dropout,
            bias=self.qkv_bias,
            max_positions=self.max_positions,
            **given,
        )
        for of_heads in (attention.q_norm, attention.k_norm):
            if of_heads is not None:
                of_heads.eps = self.norm_epsilon
        inner = attention.out_proj.in_features
        attention.out_proj = nn.Linear(inner, self.embed_dim, bias=False)
        return attention


class DecoderState(NamedTuple):
    """What a decoder keeps from step to step. Steps return a new one.

    layers: the state of each layer's attention; of constant size, but for softmax attention
    read: (B,), the tokens that each row has read, without padding
    """

    layers: tuple[Any, ...]
    read: Tensor

    def reorder(self, new_order: Tensor) -> "DecoderState":
        """The rows new_order (B',) of the batch, as beam search selects them."""
        layers = tuple(layer.reorder(new_order) for layer in self.layers)
        return DecoderState(layers, self.read.index_select(0, new_order))


class LayerInputs(NamedTuple):
    """What all layers get beside the representations.

    key_padding_mask: (B, T), True at padding; positions: (B, T), of rotary positions
    steps: whether the layer continues from a state and returns the next one
    """

    key_padding_mask: Tensor | None
    positions: Tensor
    shared: Shared
    steps: bool


class GatedFeedForward(nn.Module):
    """SwiGLU (Shazeer, "GLU Variants Improve Transformer", 2020), or another activation."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        embed_dim, inner = sizes.embed_dim, sizes.inner_dim
        self.gate_proj, self.up_proj = (nn.Linear(embed_dim, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, embed_dim, bias=False)
        self.activation = activation(sizes.activation)

    def forward(self, x: Tensor) -> Tensor:
        """(..., E) -> (..., E)"""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Causal attention and a feed-forward network, each after a norm and around a residual."""

    def __init__(self, sizes: DecoderSizes, number: int) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (norm(sizes) for _ in range(2))
        self.self_attn = sizes.attention(number)
        self.mlp = GatedFeedForward(sizes)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor, inputs: LayerInputs, state: Any = None) -> tuple[Tensor, Any]:
        """x: (B, T, E); state: of the attention, None at the start."""
        out, state = self._attend(self.input_layernorm(x), inputs, state)
        x = x + self.dropout(out)
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x))), state

    def _attend(self, x: Tensor, inputs: LayerInputs, state: Any) -> tuple[Tensor, Any]:
        given: dict[str, Any] = {"key_padding_mask": inputs.key_padding_mask}
        given["shared"] = inputs.shared
        if self.self_attn.rotary is not None:
            given["positions"] = inputs.positions
        if inputs.steps:
            return self.step_from(state, x, given)
        return self.self_attn(x, **given), None

    def step_from(self, state: Any, x: Tensor, given: dict[str, Any]) -> tuple[Tensor, Any]:
        return self.self_attn.step(x, state, **given)


class Decoder(nn.Module):
    """The decoder without an output projection."""

    def __init__(self, sizes: DecoderSizes) -> None:
        # Not by super(): transformers' model of this network has a second base class.
        nn.Module.__init__(self)
        self.sizes = sizes
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.embed_dim)
        self.layers = nn.ModuleList(self.build_layer(number) for number in range(sizes.layers))
        self.norm = norm(sizes)
        self.dropout = nn.Dropout(sizes.dropout)
        for module in self.modules():
            draw(module, sizes.deviation)

    def build_layer(self, number: int) -> nn.Module:
        return DecoderLayer(self.sizes, number)

    def forward(
        self,
        tokens: Tensor | None,
        key_padding_mask: Tensor | None = None,
        *,
        embeddings: Tensor | None = None,
        positions: Tensor | None = None,
        hidden_states: list[Tensor] | None = None,
    ) -> Tensor:
        """The states (B, T, E) of tokens (B, T), normed.

        key_padding_mask: (B, T), True at padding, on either side
        embeddings: (B, T, E), in the place of the tokens
        positions: (B, T), of rotary positions; None counts from 0, without padding
        hidden_states: a list that takes the embeddings and the states after each layer, the last
            ones normed

        Raises ValueError for shapes that do not fit.
        """
        x = self.embed_tokens(tokens) if embeddings is None else embeddings
        if positions is None:
            positions = positions_of(x.unsqueeze(1), key_padding_mask)
        return self._run(x, key_padding_mask, positions, hidden_states)[0]

    def step(
        self,
        tokens: Tensor | None,
        state: DecoderState | None = None,
        key_padding_mask: Tensor | None = None,
        *,
        embeddings: Tensor | None = None,
        positions: Tensor | None = None,
        hidden_states: list[Tensor] | None = None,
    ) -> tuple[Tensor, DecoderState]:
        """The states (B, T, E) of T >= 1 further tokens, and the state of decoding after them.

        state: of the tokens before, None at the start. Other arguments are those of `forward`.
        """
        x = self.embed_tokens(tokens) if embeddings is None else embeddings
        read = None if state is None else state.read
        places = positions_of(x.unsqueeze(1), key_padding_mask, read)
        layers = [None] * len(self.layers) if state is None else state.layers
        out, after = self._run(
            x, key_padding_mask, places if positions is None else positions, hidden_states, layers
        )
        return out, DecoderState(after, places[:, -1] + 1)

    def _run(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None,
        positions: Tensor,
        hidden_states: list[Tensor] | None,
        states: Any = None,
    ) -> tuple[Tensor, tuple[Any, ...]]:
        inputs = LayerInputs(key_padding_mask, positions, Shared(), states is not None)
        x, after = self.dropout(x), []
        for number, layer in enumerate(self.layers):
            if hidden_states is not None:
                hidden_states.append(x)
            x, state = layer(x, inputs, states[number] if inputs.steps else None)
            after.append(state)
        x = self.norm(x)
        if hidden_states is not None:
            hidden_states.append(x)
        return x, tuple(after)


class DecoderLM(nn.Module):
    """The decoder as a language model."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        self.model = Decoder(sizes)
        self.lm_head = output_projection(sizes)
        if sizes.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The logits (B, T, symbols) of the tokens after those of `tokens` (B, T)."""
        return self.lm_head(self.model(tokens, key_padding_mask))

    def step(
        self,
        tokens: Tensor,
        state: DecoderState | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState]:
        """The logits (B, T, symbols) of T >= 1 further tokens, and the state after them."""
        states, state = self.model.step(tokens, state, key_padding_mask)
        return self.lm_head(states), state


def norm(sizes: DecoderSizes) -> nn.RMSNorm:
    return nn.RMSNorm(sizes.embed_dim, eps=sizes.norm_epsilon)


def output_projection(sizes: DecoderSizes) -> nn.Linear:
    """From states to logits, which may have the weights of the embeddings."""
    projection = nn.Linear(sizes.embed_dim, sizes.vocab_size, bias=False)
    nn.init.normal_(projection.weight, std=sizes.deviation)
    return projection


def draw(module: nn.Module, deviation: float) -> None:
    """Draws the first weights of a module of the decoder. Controls draw their own."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=deviation)
    elif isinstance(module, ABCAttention | GatedFeedForward):
        for projection in module.children():
            if isinstance(projection, nn.Linear):
                nn.init.normal_(projection.weight, std=deviation)
                if projection.bias is not None:
                    nn.init.zeros_(projection.bias)
