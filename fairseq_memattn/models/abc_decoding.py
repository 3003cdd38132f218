"""The base class of encoder-decoder models whose decoder may have bounded memories."""

from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerModel
from torch import nn

from fairseq_memattn.modules.abc_layers import ABCTransformerDecoder
from fairseq_memattn.modules.low_rank import add_updates


class ABCDecoding(TransformerModel):
    """fairseq's transformer with ABC's decoder; without slots its attention is softmax."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "ABCDecoding":
        model: ABCDecoding = super().build_model(args, task)
        add_updates(model, args)
        return model

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        cfg = TransformerConfig.from_namespace(args)
        return ABCTransformerDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

    def max_positions(self) -> tuple[int, int]:
        source = self.decoder.max_source_positions(self.encoder.max_positions())
        return source, self.decoder.max_positions()
