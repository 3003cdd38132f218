"""GenBERT over GMAT's encoder: one set of weights that encodes and decodes.

Sources: Geva et al., "Injecting Numerical Reasoning Skills into Language Models" (GenBERT); Gupta
and Berant, "GMAT: Global Memory Augmentation for Transformers", section 3.2 and appendix A.1.

Each layer of the decoder uses the weights of the encoder's layer of the same number or, where fewer
layers decode (an option of ours), of one of the encoder's last layers: causal self-attention, then
cross attention to the encoder's tokens through the same projections and the same norm (a choice;
the papers say that the weights are tied), then the same feed-forward layer. The decoder uses
neither the memory nor its projections.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fairseq_memattn.attention.nn.global_memory import GlobalMemoryAttention
from fairseq_memattn.attention.ops.key_values import KeyValues
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.networks.gmat import GMATEncoder, GMATOutput
from fairseq_memattn.networks.gmat_layers import GMATConfig, MaskedLMHead
from fairseq_memattn.networks.positions import token_positions


@dataclass
class GenBERTConfig(GMATConfig):
    """The configuration of GenBERT.

    decoder_layers: how many of the encoder's layers decode, the last ones; None is all of them

    Raises MemAttnError for values that do not fit together.
    """

    decoder_layers: int | None = None

    def __post_init__(self) -> None:
        GMATConfig.__post_init__(self)
        if self.sparsity == "lsh":
            raise MemAttnError("`sparsity` lsh has no key projection, which the decoder needs")
        if self.decoder_layers is None:
            self.decoder_layers = self.num_hidden_layers
        if not 1 <= self.decoder_layers <= self.num_hidden_layers:
            raise MemAttnError(
                f"`decoder_layers` must be from 1 to the {self.num_hidden_layers} "
                f"`num_hidden_layers`, but is {self.decoder_layers}"
            )


class GenBERTState(NamedTuple):
    """What decoding keeps from step to step.

    visible: (B, 1, 1, S), False at padding of the source
    source: of each layer, the keys and values of the source, or its states (B, S, E)
    own: of each layer, the keys and values of the T tokens of the target so far; empty before the
        first
    padding: (B, T), True at padding of the target; None without padding
    length: T
    """

    visible: Tensor
    source: tuple[KeyValues | Tensor, ...]
    own: tuple[KeyValues, ...] = ()
    padding: Tensor | None = None
    length: int = 0

    def reorder(self, new_order: Tensor) -> "GenBERTState":
        """The state of the hypotheses new_order (B',), indices into the batch."""
        return GenBERTState(
            self.visible.index_select(0, new_order),
            tuple(
                x.reorder(new_order) if isinstance(x, KeyValues) else x.index_select(0, new_order)
                for x in self.source
            ),
            tuple(x.reorder(new_order) for x in self.own),
            None if self.padding is None else self.padding.index_select(0, new_order),
            self.length,
        )


class GenBERTDecoderLayer(nn.Module):
    """A layer of the decoder, which computes with the weights of an encoder's layer."""

    def forward(
        self,
        x: Tensor,
        tied: Any,
        source: KeyValues | Tensor,
        own: KeyValues | None,
        visible: Tensor | None,
        visible_source: Tensor,
    ) -> tuple[Tensor, KeyValues]:
        """x: (B, T, E); tied: the `GMATEncoderLayer` whose weights it uses
        source: keys and values of the source, or its states (B, S, E)
        own: keys and values of the tokens before
        visible: (B or 1, 1, T, T with those before), True where a token is seen; None is causal
        visible_source: (B, 1, 1, S)

        Returns (B, T, E), and the keys and values of all tokens.
        """
        attention, norm = tied.self_attn, tied.self_attn_layer_norm
        kept: Any = None

        def to_itself(x: Tensor) -> Tensor:
            nonlocal kept
            new = keys_and_values(attention, x)
            kept = new if own is None else own.append(new.keys, new.values)
            return attend(attention, x, kept, visible)

        def to_source(x: Tensor) -> Tensor:
            if isinstance(source, KeyValues):
                return attend(attention, x, source, visible_source)
            return attend(attention, x, keys_and_values(attention, source), visible_source)

        x = tied.residual(norm, x, to_itself)
        x = tied.residual(norm, x, to_source)
        return tied.residual(tied.final_layer_norm, x, tied.feed_forward), kept


def keys_and_values(attention: GlobalMemoryAttention, x: Tensor) -> KeyValues:
    """Of x (B, T, E), by the projections of the encoder."""
    assert attention.k_proj is not None
    return KeyValues(attention.split(attention.k_proj(x)), attention.split(attention.v_proj(x)))


def attend(
    attention: GlobalMemoryAttention, x: Tensor, source: KeyValues, visible: Tensor | None
) -> Tensor:
    """Attention of x (B, T, E). visible: None is causal. Returns (B, T, E)."""
    out = scaled_dot_product_attention(
        attention.split(attention.q_proj(x)),
        source.keys,
        source.values,
        attn_mask=visible,
        dropout_p=attention.drop_rate,
        is_causal=visible is None and x.shape[1] > 1,
    )
    return attention.join(out)


class GenBERTDecoder(nn.Module):
    """A decoder with the embeddings and layers of an encoder, which each call is given.

    embed_dim: E; layers: how many of the encoder's layers decode, the last ones

    A learned vector is added to every embedding of the target. It is the difference between BERT's
    segments 1 and 0; segment 0 is part of the position embeddings, as in RoBERTa (a choice).
    """

    def __init__(self, embed_dim: int, layers: int) -> None:
        # Not by super(): other libraries' models of this network have a second base class.
        nn.Module.__init__(self)
        self.segment = nn.Parameter(0.02 * torch.randn(embed_dim))
        self.decoder_layers = nn.ModuleList(self.build_layer() for _ in range(layers))

    def build_layer(self) -> nn.Module:
        """A layer, which has no weights."""
        return GenBERTDecoderLayer()

    def forward(
        self,
        encoder: GMATEncoder,
        tokens: Tensor,
        states: Tensor,
        source_padding: Tensor,
        key_padding_mask: Tensor | None = None,
        right_padded: bool = False,
    ) -> tuple[Tensor, ...]:
        """tokens: (B, T), the whole target
        states: (B, S, E), of the encoder; source_padding: (B, S), True at padding
        key_padding_mask: (B, T), True at padding; None is no padding
        right_padded: whether all padding is behind the tokens, which do not see it then

        Returns the states (B, T, E) before the first layer and after each layer, of which the last
        enter a head.

        Raises MemAttnError for more positions than the encoder has.
        """
        sources = (states,) * len(self.decoder_layers)
        state = GenBERTState(~source_padding[:, None, None], sources)
        visible = _visible(tokens, 0, None if right_padded else key_padding_mask)
        return self._run(encoder, tokens, state, key_padding_mask, visible)[0]

    def start(self, encoder: GMATEncoder, states: Tensor, source_padding: Tensor) -> GenBERTState:
        """The state before the first token of a target.

        states: (B, S, E), of the encoder; source_padding: (B, S), True at padding
        """
        written = (keys_and_values(layer.self_attn, states) for layer in self.tied(encoder))
        return GenBERTState(~source_padding[:, None, None], tuple(written))

    def step(
        self,
        encoder: GMATEncoder,
        tokens: Tensor,
        state: GenBERTState,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[tuple[Tensor, ...], GenBERTState]:
        """Continues a target with the tokens (B, T). key_padding_mask: (B, T), of these tokens.

        Returns what `forward` returns for these tokens, and the state after them.
        """
        padding = _joined(state, tokens, key_padding_mask)
        visible = _visible(tokens, state.length, padding)
        hidden, own = self._run(encoder, tokens, state, padding, visible)
        length = state.length + tokens.shape[1]
        return hidden, state._replace(own=own, padding=padding, length=length)

    def tied(self, encoder: GMATEncoder) -> list[Any]:
        """The layers of the encoder that decode."""
        return list(encoder.layers)[len(encoder.layers) - len(self.decoder_layers) :]

    def _run(
        self,
        encoder: GMATEncoder,
        tokens: Tensor,
        state: GenBERTState,
        padding: Tensor | None,
        visible: Tensor | None,
    ) -> tuple[tuple[Tensor, ...], tuple[KeyValues, ...]]:
        """padding: (B, T with the tokens before); visible: of `_visible`

        Returns the states, of which the last are normed, and the keys and values of all tokens.
        """
        past, length = state.length, state.length + tokens.shape[1]
        encoder.check_length(length)
        if padding is None:
            padding = torch.zeros(len(tokens), length, dtype=torch.bool, device=tokens.device)
        positions = token_positions(padding)[:, past:]
        vectors = encoder.embed_tokens(tokens)
        x = encoder.embedded(vectors, positions, padding[:, past:], added=self.segment)
        hidden, kept = [x], []
        owns = state.own or (None,) * len(self.decoder_layers)
        rows = zip(self.decoder_layers, self.tied(encoder), state.source, owns, strict=True)
        for layer, tied, source, own in rows:
            x, own = layer(x, tied, source, own, visible, state.visible)
            hidden.append(x)
            kept.append(own)
        if encoder.layer_norm is not None:
            hidden[-1] = encoder.layer_norm(x)
        return tuple(hidden), tuple(kept)


def _joined(state: GenBERTState, tokens: Tensor, padding: Tensor | None) -> Tensor | None:
    """The padding (B, T with the tokens before) of all tokens; None without padding."""
    before = state.padding
    if before is None and padding is None:
        return None
    if before is None:
        before = torch.zeros(len(tokens), state.length, dtype=torch.bool, device=tokens.device)
    return torch.cat([before, torch.zeros_like(tokens).bool() if padding is None else padding], 1)


def _visible(tokens: Tensor, past: int, padding: Tensor | None) -> Tensor | None:
    """Which tokens a token sees: those before it without padding, and itself.

    tokens: (B, T); past: the tokens before; padding: (B, past + T), True at padding

    Returns (B or 1, 1, T, past + T); None where a token sees all before it, and no later ones.
    """
    length = tokens.shape[1]
    if padding is None and (past == 0 or length == 1):
        return None
    places = torch.arange(past + length, device=tokens.device)
    own = places[past:].unsqueeze(1)
    if padding is None:
        return (places <= own)[None, None]
    return ((places < own) & ~padding[:, None, None]) | (places == own)


class GenBERT(nn.Module):
    """GMAT's encoder, which decodes too, with the embeddings as output projection.

    config: None has the sizes of BERT-base
    """

    def __init__(self, config: GenBERTConfig | None = None) -> None:
        super().__init__()
        config = config or GenBERTConfig()
        assert config.decoder_layers is not None
        self.encoder = GMATEncoder(config)
        self.decoder = GenBERTDecoder(config.hidden_size, config.decoder_layers)
        self.lm_head = MaskedLMHead(config, config.vocab_size)
        self.lm_head.decoder.weight = self.encoder.embed_tokens.weight

    def forward(
        self, source: Tensor, target: Tensor, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """source: (B, S); target: (B, T), with padding on the right
        key_padding_mask: (B, S), True at padding; None is where the source is `pad_token_id`

        Returns logits (B, T, V) of the tokens after each token of the target.
        """
        out, padding = self.encode(source, key_padding_mask)
        own = self.encoder.padding_of(target)
        *_, features = self.decoder(self.encoder, target, out.states, padding, own, True)
        return self.lm_head(features)

    def encode(
        self, source: Tensor, key_padding_mask: Tensor | None = None
    ) -> tuple[GMATOutput, Tensor]:
        """What the encoder returns, and the padding (B, S) of the source."""
        if key_padding_mask is None:
            key_padding_mask = self.encoder.padding_of(source)
        return self.encoder(source, key_padding_mask), key_padding_mask

    def start(self, source: Tensor, key_padding_mask: Tensor | None = None) -> GenBERTState:
        """The state before the first token of a target. The arguments are those of `forward`."""
        out, padding = self.encode(source, key_padding_mask)
        return self.decoder.start(self.encoder, out.states, padding)

    def step(self, target: Tensor, state: GenBERTState) -> tuple[Tensor, GenBERTState]:
        """Continues a target with T tokens (B, T).

        Returns logits (B, T, V) of the tokens after them, and the state.
        """
        hidden, state = self.decoder.step(self.encoder, target, state)
        return self.lm_head(hidden[-1]), state
