"""fairseq's transformer encoder with GMAT's global memory, and its compression of sequences."""

import logging
from typing import Any

import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules import FairseqDropout, LayerDropModuleList, LayerNorm, PositionalEmbedding
from fairseq.modules.quant_noise import quant_noise
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_memattn.attention.nn.global_memory import SPARSITIES
from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.attention.ops.global_memory.padding import (
    reorder,
    spread_positions,
    tokens_first,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.abc_layers import check_dictionary, wrapped
from fairseq_memattn.modules.gmat_attention import GMATAttention
from fairseq_memattn.modules.gmat_positions import BlockPositionalEmbedding
from fairseq_memattn.modules.layout import batch_first, time_first

logger = logging.getLogger(__name__)


class GMATEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer with GMAT's attention.

    cfg: fairseq's TransformerConfig, with the fields of `models.gmat_config.GMATConfig`
    number: of the layer, from 0
    """

    def __init__(self, cfg: Any, number: int) -> None:
        self.number = number
        super().__init__(cfg)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """Called by fairseq's constructor."""
        return GMATAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            cfg.gmat_memory,
            memory_projections=memory_projections(cfg, self.number),
            dropout=cfg.attention_dropout,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            **sparsity(cfg, self.number),
        )


class GMATEncoder(TransformerEncoderBase):
    """fairseq's encoder whose tokens attend sparsely to one another and to a global memory.

    The memory starts as `gmat_memory` learned vectors in front of the tokens. They have no
    position; otherwise they are treated like token embeddings, layer norm and dropout included (a
    choice). Tokens and memory share feed-forward layers and norms. With `gmat_memory_positions`,
    which is not in the paper, vector m also has the position embedding of the middle of the m-th of
    M equal parts of the sequence.

    Learned positions are (q, r) embeddings; fairseq's sinusoidal positions are used unchanged.

    With `gmat_compress_after` N_c (section 2.1) the encoder drops the tokens' states after N_c
    layers. The next N_m layers work on the memory alone. The remaining layers work on the memory
    and on position embeddings, which pass through the embedding layer norm and dropout without a
    word embedding (a choice).

    cfg: fairseq's TransformerConfig, with the fields of `models.gmat_config.GMATConfig`
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        # Not fairseq's constructor, which does not number its layers and would make one table of
        # all 2 ** 15 positions. The order of the modules is that of the optimiser's states.
        super(TransformerEncoderBase, self).__init__(dictionary)
        self.cfg, self.slots = cfg, cfg.gmat_memory
        self.register_buffer("version", torch.Tensor([3]))
        self.dropout_module = FairseqDropout(cfg.dropout, module_name="GMATEncoder")
        self.max_source_positions = cfg.max_source_positions
        self.embed_tokens, self.padding_idx = embed_tokens, dictionary.pad()
        embed_dim = embed_tokens.embedding_dim
        self.embed_scale = 1.0 if cfg.no_scale_embedding else embed_dim**0.5
        has_positions, learned = not cfg.no_token_positional_embeddings, cfg.encoder.learned_pos
        self.embed_positions: Any = None
        if has_positions and not learned:
            self.embed_positions = PositionalEmbedding(
                cfg.max_source_positions, embed_dim, self.padding_idx, learned=False
            )
        self.layernorm_embedding = LayerNorm(embed_dim) if cfg.layernorm_embedding else None
        self.quant_noise = None
        noise = cfg.quant_noise
        if noise.pq > 0 and not cfg.adaptive_input:
            linear = nn.Linear(embed_dim, embed_dim, bias=False)
            self.quant_noise = quant_noise(linear, noise.pq, noise.pq_block_size)
        layers = (self.build_layer(number) for number in range(cfg.encoder.layers))
        layerdrop = cfg.encoder.layerdrop
        self.layers = LayerDropModuleList(layerdrop, layers) if layerdrop else nn.ModuleList(layers)
        self.num_layers = len(self.layers)
        self.layer_norm = LayerNorm(embed_dim) if cfg.encoder.normalize_before else None
        if has_positions and learned:
            self.embed_positions = BlockPositionalEmbedding(
                embed_dim, self.padding_idx, cfg.gmat_position_block
            )
        self.memory_tokens = nn.Embedding(self.slots, embed_dim) if self.slots else None
        if self.memory_tokens is not None:
            nn.init.normal_(self.memory_tokens.weight, std=embed_dim**-0.5)

    def build_layer(self, number: int) -> nn.Module:
        """Layer `number`, from 0."""
        return wrapped(GMATEncoderLayer(self.cfg, number), self.cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Any = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        memory_words: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """src_tokens: (B, S), with padding anywhere
        memory_words: (B, Q), the `words` of `first_memory`

        Returns what fairseq's encoder returns, with padding where `src_tokens` has it, and
        `memory`, (B, M, E), after the last layer. `encoder_states` leaves out the layers that work
        on the memory alone.
        """
        padding = src_tokens.eq(self.padding_idx)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        # Chunks are cut from the tokens, so that they do not depend on the batch's longest input.
        is_moved = possibly_any(padding[:, :-1] & ~padding[:, 1:])
        order = tokens_first(padding) if is_moved else None
        mask = padding
        if order is not None:
            x, mask = reorder(x, order), reorder(padding, order)
        first = x.masked_fill(mask.unsqueeze(2), 0.0)
        lengths = (~padding).sum(dim=1)
        first_memory = self.first_memory(lengths, memory_words, src_tokens.shape[1])
        memory, x, hidden = self._encode(first_memory, first, mask)
        states = [x, first, *hidden] if return_all_hiddens else [x]
        if order is not None:
            back = order.argsort(dim=1)
            states = [reorder(state, back) for state in states]
        x, *states = (time_first(state) for state in states)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths.to(torch.int32).unsqueeze(1)],
            "memory": [memory],
        }

    def compress(self, src_tokens: Tensor) -> Tensor:
        """The memories (B, M, E) of sequences (B, S), with padding on the right.

        Runs N_c layers on tokens and memory and N_m on the memory alone.

        Raises MemAttnError for a model trained without compression.
        """
        self._check_compresses()
        padding = src_tokens.eq(self.padding_idx)
        x, _ = self.forward_embedding(src_tokens)
        memory = self.first_memory((~padding).sum(dim=1), longest=src_tokens.shape[1])
        return self._compress(memory, x.masked_fill(padding.unsqueeze(2), 0.0), padding)[0]

    def decompress(self, memory: Tensor, lengths: Tensor) -> Tensor:
        """The encoder's output for sequences that are stored as memories.

        memory: (B, M, E), from `compress`; lengths: (B,), of the sequences

        Returns (B, longest, E). Values beyond a sequence's length are undefined.

        Raises MemAttnError for a model trained without compression, and for memories of another
        number of vectors.
        """
        self._check_compresses()
        if memory.shape[1] != self.slots:
            raise MemAttnError(
                f"the model has --gmat-memory {self.slots}, but the stored memories have "
                f"{memory.shape[1]} vectors"
            )
        positions = torch.arange(int(lengths.max()), device=lengths.device)
        return self._decompress(memory, positions >= lengths.unsqueeze(1))[1]

    def first_memory(
        self, lengths: Tensor, words: Tensor | None = None, longest: int | None = None
    ) -> Tensor:
        """The memory that enters the first layer, (B, M, E).

        lengths: (B,), the tokens of each sequence
        words: (B, Q), whose embeddings replace the first Q learned vectors, except at padding; of
            more than M words, the first M are used (section 4.4: the words of the question)
        longest: the most tokens of a sequence; None reads it from `lengths`, for which a GPU is
            waited for
        """
        if self.memory_tokens is None:
            weight: Tensor = self.embed_tokens.weight
            return weight.new_zeros(len(lengths), 0, weight.shape[1])
        x = self.embed_scale * self.memory_tokens.weight.expand(len(lengths), -1, -1)
        if self.cfg.gmat_memory_positions:
            longest = int(lengths.max()) if longest is None else longest
            x = x + self._positions(lengths, longest)[spread_positions(lengths, self.slots)].to(x)
        if words is not None:
            words = words[:, : self.slots]
            given = self.embed_scale * self.embed_tokens(words)
            learned, rest = x.split([words.shape[1], self.slots - words.shape[1]], dim=1)
            is_word = words.ne(self.padding_idx).unsqueeze(2)
            x = torch.cat([torch.where(is_word, given, learned), rest], dim=1)
        return self.as_embedded(x)

    def _positions(self, lengths: Tensor, longest: int) -> Tensor:
        """The embeddings of as many positions, at least one, (longest, E)."""
        # Position embeddings only distinguish padding from other symbols.
        table: Tensor = self.embed_positions(
            lengths.new_full((1, max(longest, 1)), self.padding_idx + 1)
        )
        return table.squeeze(0)

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> Any:
        """fairseq's hook for beam search."""
        memory = [x.index_select(0, new_order) for x in encoder_out["memory"]]
        return super().reorder_encoder_out(encoder_out, new_order) | {"memory": memory}

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        """fairseq's hook, called before a checkpoint is loaded."""
        check_dictionary(self, state_dict, name)
        self._take_memory(state_dict, name)
        return super().upgrade_state_dict_named(state_dict, name)

    def _take_memory(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Keeps the first M memory vectors. Raises MemAttnError if the checkpoint has fewer."""
        key = f"{name}.memory_tokens.weight"
        learned = len(state_dict[key]) if key in state_dict else 0
        if self.slots > learned:
            raise MemAttnError(
                f"--gmat-memory {self.slots} is more than the {learned} memory tokens of the "
                "checkpoint; `memattn convert` adds a memory to a model without one"
            )
        if self.slots < learned:
            logger.warning(
                f"--gmat-memory {self.slots}: using the first {self.slots} of the checkpoint's "
                f"{learned} memory vectors"
            )
        if self.slots:
            state_dict[key] = state_dict[key][: self.slots]
            return
        for unused in [k for k in state_dict if k == key or ".self_attn.memory_proj." in k]:
            del state_dict[unused]

    def _encode(
        self, memory: Tensor, x: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """memory: (B, M, E), the first; x: (B, S, E); padding: (B, S), on the right.

        Returns the last memory (B, M, E), the last states (B, S, E), and those after each layer.
        """
        if not self.cfg.gmat_compress_after:
            return self._normed(*self._run(self.layers, memory, x, padding))
        memory, below = self._compress(memory, x, padding)
        memory, x, above = self._decompress(memory, padding)
        return memory, x, below + above

    def _compress(self, memory: Tensor, x: Tensor, padding: Tensor) -> tuple[Tensor, list[Tensor]]:
        after, alone = self.cfg.gmat_compress_after, self.cfg.gmat_memory_layers
        memory, _, hidden = self._run(self.layers[:after], memory, x, padding)
        memory, _, _ = self._run(self.layers[after : after + alone], memory, x[:, :0], padding)
        return memory, hidden

    def _decompress(self, memory: Tensor, padding: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        first = self.cfg.gmat_compress_after + self.cfg.gmat_memory_layers
        # Position embeddings only distinguish padding from other symbols.
        symbols = padding.long().neg() + self.padding_idx + 1
        x = self.as_embedded(self.embed_positions(symbols).to(memory))
        x = x.masked_fill(padding.unsqueeze(2), 0.0)
        return self._normed(*self._run(self.layers[first:], memory, x, padding))

    def _run(
        self, layers: Any, memory: Tensor, x: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        mask = padding if possibly_any(padding) else None
        slots, hidden = memory.shape[1], []
        both = time_first(torch.cat([memory, x], dim=1))
        for layer in layers:
            both = layer(both, encoder_padding_mask=mask)
            hidden.append(batch_first(both[slots:]))
        return batch_first(both[:slots]), batch_first(both[slots:]), hidden

    def as_embedded(self, x: Tensor) -> Tensor:
        """What fairseq applies to the sum of the embeddings: layer norm, dropout and noise."""
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x)
        return x if self.quant_noise is None else self.quant_noise(x)

    def _normed(
        self, memory: Tensor, x: Tensor, hidden: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """With the final norm of --encoder-normalize-before."""
        if self.layer_norm is None:
            return memory, x, hidden
        return self.layer_norm(memory), self.layer_norm(x), hidden

    def _check_compresses(self) -> None:
        if not self.cfg.gmat_compress_after:
            raise MemAttnError(
                "the model was trained with --gmat-compress-after 0, so its memory is not a "
                "compressed form of its input"
            )


def sparsity(cfg: Any, layer: int) -> dict[str, Any]:
    """The options of the attention of a layer, counted from 0.

    Layers that work on the memory alone have softmax attention.
    """
    first = cfg.gmat_compress_after
    alone = first <= layer < first + cfg.gmat_memory_layers
    kind = "chunks" if alone else str(cfg.gmat_sparsity)
    options = {
        "chunk_size": cfg.gmat_chunk,
        "window": cfg.gmat_window,
        "rounds": cfg.gmat_lsh_rounds,
        "buckets": cfg.gmat_lsh_buckets,
        "seed": layer,
    }
    return {"sparsity": kind} | {name: options[name] for name in SPARSITIES[kind]}


def memory_projections(cfg: Any, layer: int) -> str:
    """The projections of the attention that updates a layer's memory, which tokens do not share.

    Nothing reads the memory that the last layer computes, nor the tokens of the last layer before
    compression. Such a layer has one attention left, and one set of projections.
    """
    own = {"none": "", "qkv": "qkv", "qkvo": "qkvo"}[str(cfg.gmat_memory_projections)]
    first = cfg.gmat_compress_after
    both = layer + 1 not in (first, cfg.encoder.layers)
    alone = first <= layer < first + cfg.gmat_memory_layers
    return own if cfg.gmat_memory and both and not alone else ""
