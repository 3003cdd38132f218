"""T5: an encoder, a decoder with explicit state, and both as one network.

Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn

from fairseq_memattn.attention.ops.mixture import SelectorState
from fairseq_memattn.networks.t5_layers import (
    LayerState,
    T5CrossAttention,
    T5DecoderLayer,
    T5Embedding,
    T5EncoderLayer,
    T5PositionBias,
    T5Sizes,
    masked,
    norm,
)


class Encoded(NamedTuple):
    """What an encoder returns and a decoder reads.

    states: (B, S, E), of T5Mem (B, K, S, E)
    padding: (B, S) or (B, K, S), True at padding
    slots: (B, K, M, E); None for T5
    """

    states: Tensor
    padding: Tensor
    slots: Tensor | None = None


class Decoded(NamedTuple):
    """What a decoder returns.

    states: (B, T, E), normed
    weights: those that the layers' cross attention returns: the attention weights (B, T, S) of the
        layers that compute them, or the selector's weights (B, T, K), one for all layers or one for
        each
    """

    states: Tensor
    weights: tuple[Tensor, ...]


class T5State(NamedTuple):
    """What a decoder keeps from step to step. Steps return a new one.

    layers: of each layer
    length: the tokens so far
    selector: the projected slots; None without a selector
    ahead: (B,), how many sentences of the target follow the one that is being written; None is 0
    """

    layers: tuple[LayerState, ...]
    length: int = 0
    selector: SelectorState | None = None
    ahead: Tensor | None = None

    def reorder(self, new_order: Tensor) -> "T5State":
        """The state of the hypotheses that survive a beam step.

        new_order: (B',) indices into the batch
        """
        return T5State(
            tuple(layer.reorder(new_order) for layer in self.layers),
            self.length,
            None if self.selector is None else self.selector.reorder(new_order),
            None if self.ahead is None else self.ahead.index_select(0, new_order),
        )


class T5Stack(nn.Module):
    """An encoder or a decoder. embed_tokens: a table that is shared; None makes one"""

    layers: Any  # of type nn.ModuleList
    causal = False

    def __init__(self, sizes: T5Sizes, embed_tokens: T5Embedding | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed_tokens = T5Embedding(sizes) if embed_tokens is None else embed_tokens
        self.position_bias = self.build_position_bias()
        self.layers = nn.ModuleList(self.build_layer() for _ in range(sizes.layers))
        self.final_norm = norm(sizes.embed_dim)
        self.dropout = nn.Dropout(sizes.dropout)

    def build_position_bias(self) -> nn.Module:
        """The biases that all layers share."""
        return T5PositionBias(self.sizes, bidirectional=not self.causal)

    def build_layer(self) -> nn.Module:
        raise NotImplementedError


class T5Encoder(T5Stack):
    """T5's encoder of one sequence."""

    def build_layer(self) -> nn.Module:
        return T5EncoderLayer(self.sizes)

    def forward(
        self,
        tokens: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        hidden_states: list[Tensor] | None = None,
    ) -> Encoded:
        """tokens: (B, S), padding on either side: all positions are relative

        key_padding_mask: (B, S), True at padding; None is found from the padding symbol
        hidden_states: a list that gets the states (B, S, E) of the embeddings and of all layers but
            the last
        """
        padding = tokens.eq(self.sizes.pad) if key_padding_mask is None else key_padding_mask
        bias = masked(self.position_bias(tokens.shape[1]), ~padding[:, None, None])
        x = self.dropout(self.embed_tokens(tokens))
        return Encoded(self.run(x, hidden_states, bias), padding)

    def run(self, x: Tensor, hidden_states: list[Tensor] | None, *inputs: Any) -> Tensor:
        """The layers and the last norm. inputs: of each layer"""
        for layer in self.layers:
            if hidden_states is not None:
                hidden_states.append(x)
            x = layer(x, *inputs)
        return self.dropout(self.final_norm(x))


class T5Decoder(T5Stack):
    """T5's decoder, whose embeddings are the output projection too.

    `forward` reads a whole target, `step` continues one.
    """

    causal = True

    def build_layer(self) -> nn.Module:
        return T5DecoderLayer(self.sizes, self.build_cross_attention())

    def build_cross_attention(self) -> nn.Module:
        return T5CrossAttention(self.sizes)

    def forward(
        self, tokens: Tensor, encoded: Encoded, target_context: Tensor | None = None, **options: Any
    ) -> Decoded:
        """tokens: (B, T), a target from its start symbol on

        target_context: (B,), see `T5State.ahead`; only a selector reads it
        options: `key_padding_mask` and `hidden_states`, see `step`
        """
        layers = (LayerState(),) * len(self.layers)
        state = T5State(layers, 0, self.selected(encoded), target_context)
        source = (self.source(encoded), self.visible(encoded))
        return self._run(tokens, state, source, **options)[0]

    def start(self, encoded: Encoded, target_context: Tensor | None = None) -> T5State:
        """The state before the first step. The source is projected here, once."""
        source = (self.source(encoded), self.visible(encoded))
        layers = (
            LayerState(None, layer.cross_attention.block.write(*source)) for layer in self.layers
        )
        return T5State(tuple(layers), 0, self.selected(encoded), target_context)

    def step(self, tokens: Tensor, state: T5State, **options: Any) -> tuple[Decoded, T5State]:
        """tokens: (B, T), those that follow the ones that the state has read

        key_padding_mask: (B, past + T), True at padding on the left or on the right; None is none
        hidden_states: a list that gets the states (B, T, E) of the embeddings and of all layers but
            the last

        Returns what `forward` returns for these tokens, and the state after them.
        """
        decoded, layers = self._run(tokens, state, (), **options)
        length, ahead = state.length + tokens.shape[1], self.ahead_after(tokens, state)
        return decoded, state._replace(layers=layers, length=length, ahead=ahead)

    def logits(self, states: Tensor) -> Tensor:
        """(B, T, E) -> (B, T, symbols)"""
        return self.embed_tokens.logits(states)

    def source(self, encoded: Encoded) -> Tensor:
        """The states that the layers' cross attention projects."""
        return encoded.states

    def visible(self, encoded: Encoded) -> Tensor:
        """False at padding of the `source`."""
        return ~encoded.padding

    def selected(self, encoded: Encoded) -> SelectorState | None:
        """`T5State.selector`."""
        return None

    def selection(self, tokens: Tensor, x: Tensor, state: T5State) -> tuple[Any, ...]:
        """What the layers' cross attention reads beside the source. x: the embedded tokens"""
        return ()

    def ahead_after(self, tokens: Tensor, state: T5State) -> Tensor | None:
        """`T5State.ahead` after tokens (B, T)."""
        return state.ahead

    def _run(
        self,
        tokens: Tensor,
        state: T5State,
        source: tuple[Tensor, ...],
        key_padding_mask: Tensor | None = None,
        hidden_states: list[Tensor] | None = None,
    ) -> tuple[Decoded, tuple[LayerState, ...]]:
        x = self.dropout(self.embed_tokens(tokens))
        selection = self.selection(tokens, x, state)
        bias = self.position_bias(tokens.shape[1], state.length)
        if key_padding_mask is not None:
            bias = masked(bias, ~key_padding_mask[:, None, None])
        weights, after = [], []
        for layer, before in zip(self.layers, state.layers, strict=True):
            if hidden_states is not None:
                hidden_states.append(x)
            x, of_layer, own = layer(x, bias, before, *selection, *source)
            if of_layer is not None:
                weights.append(of_layer)
            if not source:
                after.append(before._replace(own=own))
        x = self.dropout(self.final_norm(x))
        return Decoded(x, self.reported(weights)), tuple(after)

    def reported(self, weights: list[Tensor]) -> tuple[Tensor, ...]:
        """`Decoded.weights`, from those of the layers."""
        return tuple(weights)


class T5(nn.Module):
    """T5 (Raffel et al., 2020): from the tokens of a source and a target to logits.

    sizes: of the decoder, and of the encoder unless `source_sizes` is given
    share_embeddings: whether source and target have one embedding table. The decoder's input and
        output share a table in any case

    Raises ValueError for a shared table of two sizes.
    """

    sizes_class: type[T5Sizes] = T5Sizes
    encoder_class: Any = T5Encoder

    def __init__(
        self,
        sizes: T5Sizes | None = None,
        source_sizes: T5Sizes | None = None,
        *,
        share_embeddings: bool = True,
    ) -> None:
        super().__init__()
        sizes = self.sizes_class() if sizes is None else sizes
        source_sizes = sizes if source_sizes is None else source_sizes
        table = T5Embedding(source_sizes)
        self.encoder = self.encoder_class(source_sizes, table)
        of_target = table if share_embeddings else T5Embedding(sizes)
        if of_target.weight.shape != (sizes.vocab_size, sizes.embed_dim):
            raise ValueError(
                "`share_embeddings` needs `vocab_size` and `embed_dim` to be equal in `sizes` and "
                f"`source_sizes`, but they are {sizes.vocab_size}, {sizes.embed_dim} and "
                f"{source_sizes.vocab_size}, {source_sizes.embed_dim} instead."
            )
        self.decoder = self.decoder_class(sizes)(sizes, of_target)

    @staticmethod
    def decoder_class(sizes: Any) -> type[T5Decoder]:
        return T5Decoder

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        target_context: Tensor | None = None,
    ) -> Tensor:
        """source: (B, S) tokens, of T5Mem (B, K, S), see the encoder

        target: (B, T), from the start symbol on, padding on the right
        key_padding_mask: of the source's shape, True at padding; None is found from the padding
            symbol
        target_context: (B,), see `T5State.ahead`; only a selector reads it

        Returns logits (B, T, symbols).
        """
        encoded = self.encoder(source, key_padding_mask)
        return self.decoder.logits(self.decoder(target, encoded, target_context).states)

    def start(
        self,
        source: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        target_context: Tensor | None = None,
    ) -> T5State:
        """The state before the first step. The arguments are those of `forward`."""
        return self.decoder.start(self.encoder(source, key_padding_mask), target_context)

    def step(self, target: Tensor, state: T5State) -> tuple[Tensor, T5State]:
        """target: (B, T), the tokens that follow those that the state has read.

        Returns logits (B, T, symbols), and the state after them.
        """
        decoded, state = self.decoder.step(target, state)
        return self.decoder.logits(decoded.states), state
