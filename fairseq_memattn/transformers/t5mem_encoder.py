"""The encoders of T5 and T5Mem in transformers' format."""

from dataclasses import dataclass

from torch import LongTensor, Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput

from fairseq_memattn.transformers.t5mem_blocks import (
    Residual,
    T5Embedding,
    T5FeedForward,
    T5PositionBias,
    T5SelfAttention,
    masked,
    norm,
)
from fairseq_memattn.transformers.t5mem_config import T5MemConfig


@dataclass
class T5MemEncoderOutput(BaseModelOutput):
    """What the decoder reads of the encoder.

    last_hidden_state: (B, S, E)
    attention_mask: (B, S), 1 at tokens and 0 at padding
    """

    attention_mask: LongTensor | None = None


class T5EncoderLayer(GradientCheckpointingLayer):
    """Self-attention and a feed-forward layer."""

    def __init__(self, config: T5MemConfig, layer: int) -> None:
        super().__init__()
        sizes = config.sizes("encoder")
        self.attention = Residual(config, T5SelfAttention(config, sizes, layer), sizes.embed_dim)
        self.ffn = Residual(config, T5FeedForward(config, sizes), sizes.embed_dim)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """x: (B, S, E); bias: (B, H, S, S)."""
        out: Tensor = self.ffn(self.attention(x, bias))
        return out


class T5Encoder(nn.Module):
    """T5's encoder of one sequence."""

    main_input_name = "input_ids"

    def __init__(self, config: T5MemConfig) -> None:
        super().__init__()
        self.config, sizes = config, config.sizes("encoder")
        symbols = config.source_vocab_size or config.vocab_size
        self.embed_tokens = T5Embedding(config, symbols, sizes.embed_dim)
        self.position_bias = T5PositionBias(config, sizes, bidirectional=True)
        self.layers = nn.ModuleList(T5EncoderLayer(config, n) for n in range(config.encoder_layers))
        self.final_norm = norm(sizes.embed_dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> T5MemEncoderOutput:
        """input_ids: (B, S), padding on either side: all positions are relative

        attention_mask: (B, S), 1 at tokens and 0 at padding; None is found from the padding symbol
        output_attentions: must not be True
        return_dict: of `generate`, which wants what is returned in any case
        """
        check_attentions(output_attentions)
        if attention_mask is None:
            attention_mask = input_ids.ne(self.config.pad_token_id).long()
        visible = attention_mask.bool()[:, None, None]
        bias = masked(self.position_bias(input_ids.shape[1]), visible)
        states = [self.dropout(self.embed_tokens(input_ids))]
        for layer in self.layers:
            states.append(layer(states[-1], bias))
        states[-1] = self.dropout(self.final_norm(states[-1]))
        return T5MemEncoderOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
            attention_mask=attention_mask,
        )


def check_attentions(output_attentions: bool | None) -> None:
    """Raises ValueError where attention weights are asked for."""
    if output_attentions:
        raise ValueError("`output_attentions` must not be True: the weights are not returned.")
