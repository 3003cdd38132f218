"""fairseq's transformer encoder with GMAT's global memory, and its compression of sequences."""

import logging
from copy import copy
from typing import Any

import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.abc_layers import check_dictionary, wrapped
from fairseq_memattn.modules.gmat_attention import GMATAttention, Sparsity
from fairseq_memattn.modules.gmat_positions import BlockPositionalEmbedding

logger = logging.getLogger(__name__)


class GMATEncoder(TransformerEncoderBase):
    """fairseq's encoder whose tokens attend sparsely to one another and to a global memory.

    The memory begins as `gmat_memory` learned vectors, which stand before the tokens. They have
    no position; else they are treated as embeddings of tokens are, layer norm and dropout
    included (a choice). Feed-forward layers and norms are those of the tokens.

    Learned positions are (q, r) embeddings; fairseq's sinusoidal ones stay what they are.

    With `gmat_compress_after` N_c (section 2.1) the tokens' states are dropped after N_c layers,
    the next N_m work on the memory alone, and the others on the memory and on embeddings of
    positions, which go through the embeddings' layer norm and dropout, without any word (a choice).

    cfg: fairseq's TransformerConfig, with the fields of `models.gmat_config.GMATConfig`
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        self.slots = cfg.gmat_memory
        self._built = 0
        learned = cfg.encoder.learned_pos and not cfg.no_token_positional_embeddings
        plain = copy(cfg)
        # Or fairseq would make a table of all positions, 2 ** 15 of them.
        plain.no_token_positional_embeddings |= learned
        super().__init__(plain, dictionary, embed_tokens)
        embed_dim = embed_tokens.embedding_dim
        if learned:
            self.embed_positions = BlockPositionalEmbedding(
                embed_dim, self.padding_idx, cfg.gmat_position_block
            )
        self.memory_tokens = nn.Embedding(self.slots, embed_dim) if self.slots else None
        if self.memory_tokens is not None:
            nn.init.normal_(self.memory_tokens.weight, std=embed_dim**-0.5)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        """Called from fairseq's __init__, layer after layer."""
        layer = TransformerEncoderLayerBase(cfg)
        layer.self_attn = GMATAttention(
            cfg.encoder.embed_dim,
            cfg.encoder.attention_heads,
            self.slots,
            sparsity(cfg, self._built),
            own=own_projections(cfg, self._built),
            dropout=cfg.attention_dropout,
            q_noise=cfg.quant_noise.pq,
            qn_block_size=cfg.quant_noise.pq_block_size,
        )
        self._built += 1
        return wrapped(layer, cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Any = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        memory_words: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """src_tokens: (B, S), with padding anywhere; what is returned has it in the same places.
        memory_words: (B, Q) as `first_memory` takes them

        Returns what fairseq's encoder does, and `memory`, (B, M, E), as the last layer leaves it.
        Layers on the memory alone have no `encoder_states`.
        """
        padding = src_tokens.eq(self.padding_idx)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        # Chunks are cut where tokens are, so that they do not depend on the longest sequence.
        order = _order(padding)
        first = _by(order, x).masked_fill(_by(order, padding).unsqueeze(2), 0.0).transpose(0, 1)
        memory = self.first_memory(len(src_tokens), memory_words)
        memory, x, hidden = self._encode(memory, first, _by(order, padding))
        back = None if order is None else order.argsort(dim=1)
        states = [first, *hidden] if return_all_hiddens else []
        return {
            "encoder_out": [_by(back, x.transpose(0, 1)).transpose(0, 1)],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": [_by(back, h.transpose(0, 1)).transpose(0, 1) for h in states],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [(~padding).sum(dim=1, keepdim=True, dtype=torch.int32)],
            "memory": [memory.transpose(0, 1)],
        }

    def compress(self, src_tokens: Tensor) -> Tensor:
        """(B, S), with padding on the right, as memories (B, M, E): N_c layers and N_m more.

        Raises MemAttnError for a model that was not made to compress.
        """
        self._check_compresses()
        padding = src_tokens.eq(self.padding_idx)
        x, _ = self.forward_embedding(src_tokens)
        x = x.masked_fill(padding.unsqueeze(2), 0.0).transpose(0, 1)
        memory = self.first_memory(len(src_tokens))
        return self._compress(memory, x, padding)[0].transpose(0, 1)

    def decompress(self, memory: Tensor, lengths: Tensor) -> Tensor:
        """What the encoder says of sequences that `compress` made memories of.

        memory: (B, M, E); lengths: (B,), of the sequences. Returns (B, longest, E), of which what
        is beyond a sequence's length means nothing.

        Raises MemAttnError for a model that was not made to compress, and for other memories than
        its own.
        """
        self._check_compresses()
        if memory.shape[1] != self.slots:
            raise MemAttnError(
                f"--gmat-memory {self.slots} is the model's, but the stored memories are of "
                f"{memory.shape[1]} vectors"
            )
        positions = torch.arange(int(lengths.max()), device=lengths.device)
        padding = positions >= lengths.unsqueeze(1)
        _, x, _ = self._decompress(memory.transpose(0, 1), padding)
        return x.transpose(0, 1)

    def first_memory(self, batch: int, words: Tensor | None = None) -> Tensor:
        """(M, B, E), as it comes into the first layer.

        words: (B, Q) whose embeddings replace the first Q learned vectors, but for padding, where
            these stay; of more than M words the first M (GMAT, section 4.4: those of the question)
        """
        if self.memory_tokens is None:
            weight: Tensor = self.embed_tokens.weight
            return weight.new_zeros(0, batch, weight.shape[1])
        x = self.embed_scale * self.memory_tokens.weight.unsqueeze(1).expand(-1, batch, -1)
        if words is not None:
            words = words[:, : self.slots].t()
            given = self.embed_scale * self.embed_tokens(words)
            learned, rest = x.split([len(words), self.slots - len(words)])
            is_word = words.ne(self.padding_idx).unsqueeze(2)
            x = torch.cat([torch.where(is_word, given, learned), rest])
        return self.as_embedded(x)

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> Any:
        memory = [x.index_select(0, new_order) for x in encoder_out["memory"]]
        return super().reorder_encoder_out(encoder_out, new_order) | {"memory": memory}

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        check_dictionary(self, state_dict, name)
        self._take_memory(state_dict, name)
        return super().upgrade_state_dict_named(state_dict, name)

    def _take_memory(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Of a checkpoint's memory, the first M vectors. Raises MemAttnError where it has fewer."""
        key = f"{name}.memory_tokens.weight"
        learned = len(state_dict[key]) if key in state_dict else 0
        if self.slots > learned:
            raise MemAttnError(
                f"--gmat-memory {self.slots} is more than the {learned} memory tokens that the "
                "checkpoint has; `memattn convert` gives a model without memory a new one"
            )
        if self.slots < learned:
            logger.warning(
                f"the first {self.slots} of the checkpoint's {learned} memory vectors are taken, "
                f"by --gmat-memory {self.slots}"
            )
        if self.slots:
            state_dict[key] = state_dict[key][: self.slots]
            return
        for unused in [k for k in state_dict if k == key or ".self_attn.memory_proj." in k]:
            del state_dict[unused]

    def _encode(
        self, memory: Tensor, x: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """memory: (M, B, E), the first; x: (S, B, E); padding: (B, S), on the right.

        Returns the memory (M, B, E), the tokens (S, B, E), and these after each layer.
        """
        if not self.cfg.gmat_compress_after:
            return self._normed(*self._run(self.layers, memory, x, padding))
        memory, below = self._compress(memory, x, padding)
        memory, x, above = self._decompress(memory, padding)
        return memory, x, below + above

    def _compress(self, memory: Tensor, x: Tensor, padding: Tensor) -> tuple[Tensor, list[Tensor]]:
        after, alone = self.cfg.gmat_compress_after, self.cfg.gmat_memory_layers
        memory, _, hidden = self._run(self.layers[:after], memory, x, padding)
        memory, _, _ = self._run(self.layers[after : after + alone], memory, x[:0], padding)
        return memory, hidden

    def _decompress(self, memory: Tensor, padding: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        first = self.cfg.gmat_compress_after + self.cfg.gmat_memory_layers
        any_token = padding.long().neg() + self.padding_idx + 1
        x = self.as_embedded(self.embed_positions(any_token).to(memory))
        x = x.masked_fill(padding.unsqueeze(2), 0.0).transpose(0, 1)
        return self._normed(*self._run(self.layers[first:], memory, x, padding))

    def _run(
        self, layers: Any, memory: Tensor, x: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        mask = padding if padding.any() else None
        both, hidden = torch.cat([memory, x]), []
        for layer in layers:
            both = layer(both, encoder_padding_mask=mask)
            hidden.append(both[len(memory) :])
        memory, x = both.split([len(memory), len(x)])
        return memory, x, hidden

    def as_embedded(self, x: Tensor) -> Tensor:
        """What fairseq does to embeddings once they are added up."""
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x)
        return x if self.quant_noise is None else self.quant_noise(x)

    def _normed(
        self, memory: Tensor, x: Tensor, hidden: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """With the norm at the end that a stack of --encoder-normalize-before has."""
        if self.layer_norm is None:
            return memory, x, hidden
        return self.layer_norm(memory), self.layer_norm(x), hidden

    def _check_compresses(self) -> None:
        if not self.cfg.gmat_compress_after:
            raise MemAttnError(
                "the model was trained with --gmat-compress-after 0, so its memory is no "
                "compressed form of its input"
            )


def sparsity(cfg: Any, layer: int) -> Sparsity:
    """That of a layer, counted from 0. Layers on the memory alone have ordinary attention."""
    first = cfg.gmat_compress_after
    alone = first <= layer < first + cfg.gmat_memory_layers
    return Sparsity(
        kind="chunks" if alone else str(cfg.gmat_sparsity),
        chunk=cfg.gmat_chunk,
        window=cfg.gmat_window,
        rounds=cfg.gmat_lsh_rounds,
        buckets=cfg.gmat_lsh_buckets,
        seed=layer,
    )


def own_projections(cfg: Any, layer: int) -> str:
    """Those of the attention that updates the memory of a layer, which tokens do not share.

    Nothing reads what the last layer makes of the memory, or of the tokens the last before
    compression. There one attention is left, and so one set of projections.
    """
    own = {"none": "", "qkv": "qkv", "qkvo": "qkvo"}[str(cfg.gmat_memory_projections)]
    first = cfg.gmat_compress_after
    both = layer + 1 not in (first, cfg.encoder.layers)
    alone = first <= layer < first + cfg.gmat_memory_layers
    return own if cfg.gmat_memory and both and not alone else ""


def _order(padding: Tensor) -> Tensor | None:
    """(B, S): each row's tokens and behind them its padding; None where all rows are so."""
    if not (padding[:, :-1] & ~padding[:, 1:]).any():
        return None
    return padding.to(torch.uint8).argsort(dim=1, stable=True)


def _by(order: Tensor | None, x: Tensor) -> Tensor:
    """(B, S) or (B, S, E) in another order of its second axis."""
    if order is None:
        return x
    rows = torch.arange(len(x), device=x.device).unsqueeze(1)
    return x[rows, order]
