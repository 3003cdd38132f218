"""GMAT's configuration, its layer, and the heads over its encoder.

Source: Gupta and Berant, "GMAT: Global Memory Augmentation for Transformers".
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.nn.global_memory import SPARSITIES, GlobalMemoryAttention
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.networks.blocks import ResidualLayer, activation
from fairseq_memattn.networks.positions import BLOCK, MAX_POSITIONS

LEARNED = ("blocks", "remainders")
POSITIONS = (*LEARNED, "sinusoidal", "none")


@dataclass
class GMATConfig:
    """The sizes and options of an encoder with a global memory. The names are those of BERT's.

    vocab_size: symbols; pad_token_id: the padding symbol, after which positions begin
    sparsity, chunk_size, window, lsh_rounds, lsh_buckets: see
        `fairseq_memattn.attention.nn.GlobalMemoryAttention`. `lsh_buckets` None depends on the
        longest sequence in the batch
    memory_slots: M, the number of memory vectors
    memory_positions: whether each memory vector has the position embedding of its part of the
        sequence, which is divided in M equal parts. This is not in the paper
    memory_projections: the projections that the attention which updates the memory does not share
        with the tokens' attention: "", "qkv" or "qkvo" (section 3.2)
    position_embedding_type: "blocks", the sum of the vectors of p mod N and of p div N for the
        position p; "remainders", that of p mod N alone; "sinusoidal"; or "none"
    position_block: N, with "blocks" and "remainders"
    compress_after: N_c, the number of layers after which only the memory is kept (section 2.1); 0
        keeps the tokens
    memory_layers: N_m, the number of layers after those that work on the memory alone
    normalize_before: layer norm before each block instead of after it
    embedding_layer_norm: layer norm of the embeddings
    scale_embedding: whether embeddings are multiplied by the square root of their size
    layerdrop: the probability that training skips a layer

    Raises MemAttnError for values that do not fit together.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    activation_dropout: float = 0.0
    layerdrop: float = 0.0
    layer_norm_eps: float = 1e-5
    normalize_before: bool = False
    embedding_layer_norm: bool = True
    scale_embedding: bool = False
    position_embedding_type: str = "blocks"
    position_block: int = BLOCK
    max_position_embeddings: int = MAX_POSITIONS
    sparsity: str = "chunks"
    chunk_size: int | None = None
    window: int = 256
    lsh_rounds: int = 8
    lsh_buckets: int | None = None
    memory_slots: int = 64
    memory_positions: bool = False
    memory_projections: str = ""
    compress_after: int = 0
    memory_layers: int = 0
    pad_token_id: int = 1

    def __post_init__(self) -> None:
        if self.position_embedding_type not in POSITIONS:
            raise MemAttnError(
                f"`position_embedding_type` must be one of {', '.join(POSITIONS)}, but is "
                f"{self.position_embedding_type}"
            )
        if self.memory_layers and not self.compress_after:
            raise MemAttnError(
                f"`memory_layers` must be 0 without `compress_after`, but is {self.memory_layers}"
            )
        for option in ("memory_positions", "compress_after"):
            if getattr(self, option) and self.position_embedding_type == "none":
                raise MemAttnError(f"`position_embedding_type` must not be none with `{option}`")
        if self.compress_after and not self.memory_slots:
            raise MemAttnError("`memory_slots` must not be 0 with `compress_after`")
        if self.compress_after and self.first_after >= self.num_hidden_layers:
            raise MemAttnError(
                f"`compress_after` {self.compress_after} and `memory_layers` {self.memory_layers} "
                f"must leave some of the {self.num_hidden_layers} `num_hidden_layers`"
            )

    @property
    def first_after(self) -> int:
        """The first layer, from 0, that decompresses."""
        return self.compress_after + self.memory_layers

    def attention_options(self, layer: int) -> dict[str, Any]:
        """The options of the `GlobalMemoryAttention` of a layer, counted from 0.

        Layers that work on the memory alone have softmax attention. The rotations of "lsh" in
        evaluation are those of the seed `layer`. Nothing reads the memory that the last layer
        computes, nor the tokens of the last layer before compression: such a layer has one
        attention left, and one set of projections.
        """
        is_alone = self.compress_after <= layer < self.first_after
        updates_both = layer + 1 not in (self.compress_after, self.num_hidden_layers)
        is_untied = self.memory_slots and updates_both and not is_alone
        kind = "chunks" if is_alone else self.sparsity
        options = {
            "chunk_size": self.chunk_size,
            "window": self.window,
            "rounds": self.lsh_rounds,
            "buckets": self.lsh_buckets,
            "seed": layer,
        }
        return {
            "sparsity": kind,
            "memory_projections": self.memory_projections if is_untied else "",
            "dropout": self.attention_probs_dropout_prob,
            **{name: options[name] for name in SPARSITIES.get(kind, ())},
        }


class GMATEncoderLayer(ResidualLayer):
    """A layer over the memory and the tokens, which share the feed-forward layer and the norms.

    number: of the layer, from 0
    """

    def __init__(self, config: GMATConfig, number: int) -> None:
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.self_attn = GlobalMemoryAttention(
            size, config.num_attention_heads, **config.attention_options(number)
        )
        self.self_attn_layer_norm = nn.LayerNorm(size, eps)
        self.dropout_module = nn.Dropout(config.hidden_dropout_prob)
        self.activation_dropout_module = nn.Dropout(config.activation_dropout)
        self.fc1, self.fc2 = nn.Linear(size, inner), nn.Linear(inner, size)
        self.final_layer_norm = nn.LayerNorm(size, eps)
        self.activation_fn = activation(config.hidden_act)
        self.slots, self.normalize_before = config.memory_slots, config.normalize_before

    def forward(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """x: (B, M + S, E), the memory first; with S = 0 the memory attends to itself alone
        key_padding_mask: (B, S), of the tokens, True at padding, which is on the right

        Returns (B, M + S, E).
        """
        x = self.residual(self.self_attn_layer_norm, x, lambda x: self.attend(x, key_padding_mask))
        return self.residual(self.final_layer_norm, x, self.feed_forward)

    def attend(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """Equation 3. As `forward`."""
        memory, tokens = x[:, : self.slots], x[:, self.slots :]
        tokens, memory = self.self_attn.attend(tokens, memory, key_padding_mask)
        return torch.cat([memory, tokens], dim=1)


class MaskedLMHead(nn.Module):
    """BERT's head for masked words, with any number of outputs."""

    def __init__(self, config: GMATConfig, outputs: int) -> None:
        super().__init__()
        size = config.hidden_size
        self.dense = nn.Linear(size, size)
        self.activation_fn = activation(config.hidden_act)
        self.layer_norm = nn.LayerNorm(size, config.layer_norm_eps)
        self.decoder = nn.Linear(size, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """(B, S, E) to (B, S, outputs)."""
        return self.decoder(self.layer_norm(self.activation_fn(self.dense(states))))


class SpanHead(nn.Module):
    """Linear scores of each token as the answer's first and last token (GMAT, appendix A.3).

    facts: whether to add two scores for the tags 0 and 1 of supporting facts
    """

    def __init__(self, embed_dim: int, facts: bool = False) -> None:
        super().__init__()
        self.span = nn.Linear(embed_dim, 2)
        self.facts = nn.Linear(embed_dim, 2) if facts else None
        for layer in (self.span, self.facts):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)  # BERT's initialisation
                nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(B, S, E) to (B, S, 2), or (B, S, 4) with facts."""
        scores: Tensor = self.span(states)
        return scores if self.facts is None else torch.cat([scores, self.facts(states)], dim=2)
