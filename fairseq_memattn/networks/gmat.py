"""GMAT: an encoder whose tokens attend sparsely to one another and to a global memory.

Source: Gupta and Berant, "GMAT: Global Memory Augmentation for Transformers".
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairseq_memattn.attention.ops.blocks import reorder, spread_positions, tokens_first
from fairseq_memattn.attention.ops.common import possibly_any
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.networks.gmat_layers import LEARNED, GMATConfig, GMATEncoderLayer
from fairseq_memattn.networks.positions import BlockPositions, SinusoidalPositions, token_positions


class GMATOutput(NamedTuple):
    """What the encoder returns.

    states: (B, S, E), undefined at padding
    memory: (B, M, E), after the last layer
    hidden: if asked for, (B, S, E) before the first layer and after each layer, without the layers
        that work on the memory alone, and without the final norm
    """

    states: Tensor
    memory: Tensor
    hidden: tuple[Tensor, ...] = ()


class GMATEncoder(nn.Module):
    """An encoder whose tokens attend sparsely to one another and to a global memory.

    The memory starts as M learned vectors in front of the tokens. They have no position; otherwise
    they are treated like token embeddings, layer norm and dropout included (a choice).

    With `compress_after` N_c (section 2.1) the encoder drops the tokens' states after N_c layers.
    The next N_m layers work on the memory alone. The remaining layers work on the memory and on
    position embeddings, which pass through the embedding layer norm and dropout without a word
    embedding (a choice).

    config: None is BERT-base with a memory of 64 vectors
    embed_tokens: the embeddings, of which the padding symbol's are zeros; None makes new ones

    Raises ValueError for options of the attention that are out of range.
    """

    def __init__(
        self, config: GMATConfig | None = None, embed_tokens: nn.Embedding | None = None
    ) -> None:
        # Not by super(): other libraries' models of this network have a second base class.
        nn.Module.__init__(self)
        config = config or GMATConfig()
        size, slots, eps = config.hidden_size, config.memory_slots, config.layer_norm_eps
        self.config, self.padding_idx = config, config.pad_token_id
        self.embed_scale = size**0.5 if config.scale_embedding else 1.0
        self.dropout_module: nn.Module = nn.Dropout(config.hidden_dropout_prob)
        if embed_tokens is None:
            embed_tokens = nn.Embedding(config.vocab_size, size, self.padding_idx)
            nn.init.normal_(embed_tokens.weight, std=size**-0.5)
            nn.init.zeros_(embed_tokens.weight[self.padding_idx])
        self.embed_tokens = embed_tokens
        self.layernorm_embedding = nn.LayerNorm(size, eps) if config.embedding_layer_norm else None
        self.layers = nn.ModuleList(
            self.build_layer(number) for number in range(config.num_hidden_layers)
        )
        self.layer_norm = nn.LayerNorm(size, eps) if config.normalize_before else None
        self.embed_positions: nn.Module | None = None
        if config.position_embedding_type in LEARNED:
            self.embed_positions = BlockPositions(
                size,
                self.padding_idx,
                config.position_block,
                config.max_position_embeddings,
                with_blocks=config.position_embedding_type == "blocks",
            )
        elif config.position_embedding_type == "sinusoidal":
            self.embed_positions = SinusoidalPositions(size, self.padding_idx + 1)
        self.memory_tokens = nn.Embedding(slots, size) if slots else None
        if self.memory_tokens is not None:
            nn.init.normal_(self.memory_tokens.weight, std=size**-0.5)

    def build_layer(self, number: int) -> nn.Module:
        """Layer `number`, from 0."""
        return GMATEncoderLayer(self.config, number)

    def forward(
        self,
        tokens: Tensor | None,
        key_padding_mask: Tensor | None = None,
        *,
        embeddings: Tensor | None = None,
        memory_words: Tensor | None = None,
        return_hidden: bool = False,
    ) -> GMATOutput:
        """tokens: (B, S)
        key_padding_mask: (B, S), True at padding, which may be anywhere: chunks are cut from the
            tokens, so that they do not depend on the batch's longest sequence. None is where the
            tokens are `pad_token_id`
        embeddings: (B, S, E), in the place of the tokens' rows of the table
        memory_words: (B, Q), the `words` of `first_memory`
        return_hidden: whether to return `hidden`

        Raises MemAttnError for more positions than the model has.
        """
        if key_padding_mask is None:
            key_padding_mask = self.padding_of(tokens, embeddings)
        x, padding, order = self._first(tokens, key_padding_mask, embeddings)
        memory = self.first_memory((~padding).sum(dim=1), memory_words)
        states, memory, hidden = self._encode(memory, x, padding)
        hidden = hidden if return_hidden else []
        if order is not None:
            back = order.argsort(dim=1)
            states, *hidden = (reorder(state, back) for state in (states, *hidden))
        return GMATOutput(states, memory, tuple(hidden))

    def compress(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The memories (B, M, E) of sequences (B, S), with padding anywhere.

        Runs N_c layers on tokens and memory and N_m on the memory alone.

        Raises MemAttnError for a model without `compress_after`.
        """
        self._check_compresses()
        if key_padding_mask is None:
            key_padding_mask = self.padding_of(tokens)
        x, padding, _ = self._first(tokens, key_padding_mask)
        return self._compress(self.first_memory((~padding).sum(dim=1)), x, padding)[0]

    def decompress(self, memory: Tensor, lengths: Tensor) -> Tensor:
        """The last states of sequences that are stored as memories.

        memory: (B, M, E), from `compress`; lengths: (B,), of the sequences

        Returns (B, longest, E). Values beyond a sequence's length are undefined.

        Raises MemAttnError for a model without `compress_after`, and for memories of another
        number of vectors.
        """
        self._check_compresses()
        if memory.shape[1] != self.config.memory_slots:
            raise MemAttnError(
                f"the model has a memory of {self.config.memory_slots} vectors, but the given "
                f"memories have {memory.shape[1]}"
            )
        places = torch.arange(int(lengths.max()), device=lengths.device)
        return self._decompress(memory, places >= lengths.unsqueeze(1))[0]

    def padding_of(self, tokens: Tensor | None, embeddings: Tensor | None = None) -> Tensor:
        """Where the tokens are the padding symbol, (B, S); nowhere in embeddings."""
        if tokens is not None:
            return tokens.eq(self.padding_idx)
        assert embeddings is not None
        return torch.zeros(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)

    def check_length(self, length: int) -> None:
        """Raises MemAttnError for more positions than the model has."""
        most = self.config.max_position_embeddings
        if self.config.position_embedding_type in LEARNED and length > most:
            raise MemAttnError(
                f"a sequence must have at most {most} tokens (`max_position_embeddings`), but has "
                f"{length}"
            )

    def embedded(
        self,
        vectors: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor,
        added: Tensor | None = None,
    ) -> Tensor:
        """The embeddings (B, S, E) that enter the first layer.

        vectors: (B, S, E), of the tokens; positions, key_padding_mask: (B, S)
        added: (E,), a vector that is added to every embedding
        """
        x = self.embed_scale * vectors
        if added is not None:
            x = x + added
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions, key_padding_mask).to(x.dtype)
        return self.as_embedded(x)

    def as_embedded(self, x: Tensor) -> Tensor:
        """What is applied to the sum of the embeddings: layer norm and dropout."""
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def first_memory(self, lengths: Tensor, words: Tensor | None = None) -> Tensor:
        """The memory that enters the first layer, (B, M, E).

        lengths: (B,), the tokens of each sequence
        words: (B, Q), whose embeddings replace the first Q learned vectors, except at padding; of
            more than M words, the first M are used (section 4.4: the words of the question)
        """
        if self.memory_tokens is None:
            weight = self.embed_tokens.weight
            return weight.new_zeros(len(lengths), 0, weight.shape[1])
        slots = self.config.memory_slots
        x = self.embed_scale * self.memory_tokens.weight.expand(len(lengths), -1, -1)
        if self.config.memory_positions:
            assert self.embed_positions is not None
            positions = spread_positions(lengths, slots)
            x = x + self.embed_positions(positions, torch.zeros_like(positions).bool()).to(x.dtype)
        if words is not None:
            words = words[:, :slots]
            given = self.embed_scale * self.embed_tokens(words)
            learned, rest = x.split([words.shape[1], slots - words.shape[1]], dim=1)
            is_word = words.ne(self.padding_idx).unsqueeze(2)
            x = torch.cat([torch.where(is_word, given, learned), rest], dim=1)
        return self.as_embedded(x)

    def _first(
        self, tokens: Tensor | None, key_padding_mask: Tensor, embeddings: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The embeddings (B, S, E), zero at padding, which is on the right; the padding (B, S).

        The last is the order of the tokens, None if they have not been moved.
        """
        self.check_length(key_padding_mask.shape[1])
        vectors = self.embed_tokens(tokens) if embeddings is None else embeddings
        x = self.embedded(vectors, token_positions(key_padding_mask), key_padding_mask)
        order = None
        if _possibly(key_padding_mask[:, :-1] & ~key_padding_mask[:, 1:]):
            order = tokens_first(key_padding_mask)
            x, key_padding_mask = reorder(x, order), reorder(key_padding_mask, order)
        return x.masked_fill(key_padding_mask.unsqueeze(2), 0.0), key_padding_mask, order

    def _encode(
        self, memory: Tensor, x: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """memory: (B, M, E), the first; x: (B, S, E); padding: (B, S), on the right.

        Returns the last states (B, S, E), the last memory (B, M, E), and x and the states after
        each layer.
        """
        if not self.config.compress_after:
            return self._normed(*self._run(self.layers, memory, x, padding))
        memory, below = self._compress(memory, x, padding)
        states, memory, above = self._decompress(memory, padding)
        return states, memory, below + above[1:]

    def _compress(self, memory: Tensor, x: Tensor, padding: Tensor) -> tuple[Tensor, list[Tensor]]:
        after = self.config.compress_after
        memory, hidden = self._run(self.layers[:after], memory, x, padding)
        alone = self.layers[after : self.config.first_after]
        memory, _ = self._run(alone, memory, x[:, :0], padding[:, :0])
        return memory, hidden

    def _decompress(self, memory: Tensor, padding: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        assert self.embed_positions is not None
        x = self.embed_positions(token_positions(padding), padding).to(memory.dtype)
        x = self.as_embedded(x).masked_fill(padding.unsqueeze(2), 0.0)
        return self._normed(*self._run(self.layers[self.config.first_after :], memory, x, padding))

    def _run(
        self, layers: Iterable[nn.Module], memory: Tensor, x: Tensor, padding: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        mask = padding if _possibly(padding) else None
        slots, hidden = memory.shape[1], [x]
        states = torch.cat([memory, x], dim=1)
        drop = self.config.layerdrop if self.training else 0.0
        for layer in layers:
            if not drop or torch.rand(()) >= drop:
                states = layer(states, mask)
            hidden.append(states[:, slots:])
        return states[:, :slots], hidden

    def _normed(self, memory: Tensor, hidden: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """With the final norm of `normalize_before`, of the memory and the last states."""
        if self.layer_norm is None:
            return hidden[-1], memory, hidden
        return self.layer_norm(hidden[-1]), self.layer_norm(memory), hidden

    def _check_compresses(self) -> None:
        if not self.config.compress_after:
            raise MemAttnError(
                "the model has `compress_after` 0, so its memory is not a compressed form of its "
                "input"
            )


def _possibly(condition: Tensor) -> bool:
    """Whether any entry may be True: yes where reading it would break a graph or wait for a GPU."""
    return torch.compiler.is_compiling() or possibly_any(condition)
