"""Masked language models with a global memory (GMAT paper, sections 2 and 4).

`gmat_bert` has the size of BERT-base. `gmat_bert_tiny` is small enough for a CPU.
"""

from argparse import ArgumentParser
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.roberta.model import base_architecture
from fairseq.models.transformer import TransformerConfig
from torch import nn

from fairseq_memattn.models.abc_config import (
    add_dataclass_flags,
    as_namespace,
    set_defaults,
    single_length,
    tiny_sizes,
)
from fairseq_memattn.models.gmat_config import GMATBertConfig, check_positions, resolve_defaults
from fairseq_memattn.modules.gmat_encoder import GMATEncoder
from fairseq_memattn.networks.positions import MAX_POSITIONS


class GMATBertEncoder(RobertaEncoder):
    """fairseq's RoBERTa encoder over an encoder with a global memory."""

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Embedding) -> nn.Module:
        # RobertaModel initialises the weights as in BERT; fairseq's build_encoder does so twice.
        return GMATEncoder(TransformerConfig.from_namespace(args), dictionary, embed_tokens)

    def forward(
        self,
        src_tokens: Any,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Any = None,
        memory_words: Any = None,
        **unused: Any,
    ) -> Any:
        """fairseq's forward, with one argument more: `memory_words`, of `GMATEncoder.forward`."""
        x, extra = self.extract_features(
            src_tokens, return_all_hiddens=return_all_hiddens, memory_words=memory_words
        )
        return (x if features_only else self.output_layer(x, masked_tokens=masked_tokens)), extra

    def extract_features(
        self, src_tokens: Any, return_all_hiddens: bool = False, **kwargs: Any
    ) -> Any:
        """The states (B, S, E) of the tokens, and a dict with the `memory` (B, M, E)."""
        out = self.sentence_encoder(
            src_tokens,
            return_all_hiddens=return_all_hiddens,
            token_embeddings=kwargs.get("token_embeddings"),
            memory_words=kwargs.get("memory_words"),
        )
        inner_states = out["encoder_states"] if return_all_hiddens else None
        extra = {"inner_states": inner_states, "memory": out["memory"][0]}
        return out["encoder_out"][0].transpose(0, 1), extra

    def max_positions(self) -> int:
        """fairseq's hook: all positions have embeddings, whatever the length in training.

        A model without position embeddings may have been trained on longer sequences.
        """
        trained: int = self.args.max_positions
        return max(MAX_POSITIONS, trained)


@register_model("gmat_bert")
class GMATBert(RobertaModel):
    """fairseq's RoBERTa with (q, r) positions and GMAT's attention.

    Without a memory and with chunks as long as the input, it is the RoBERTa or BERT whose weights
    it has. The encoder, with `compress` and `decompress`, is `model.encoder.sentence_encoder`.
    """

    def __init__(self, args: Any, encoder: GMATBertEncoder) -> None:
        super().__init__(args, encoder)
        set_layer_norm_eps(self, args.gmat_layer_norm_eps)

    @property
    def takes_memory_words(self) -> bool:
        """Whether there are memory vectors that words can replace."""
        return bool(self.encoder.sentence_encoder.config.memory_slots)

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_dataclass_flags(parser, GMATBertConfig())
        parser.add_argument(
            "--no-token-positional-embeddings",
            action="store_true",
            help="embed tokens without positions, for tasks in which their order does not matter",
        )

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "GMATBert":
        args = as_namespace(args)
        base_architecture(args)
        told, longest = getattr(args, "max_positions", None), single_length(task)
        if not getattr(args, "no_token_positional_embeddings", False):
            check_positions("--max-positions", told or 0)
            check_positions("the task's longest sequence (--tokens-per-sample, --window)", longest)
        longest = told or longest
        args.max_positions = longest
        resolve_defaults(args, GMATBertConfig(), longest)
        return cls(args, GMATBertEncoder(args, task.source_dictionary))


@register_model_architecture("gmat_bert", "gmat_bert")
def base(args: Any) -> None:
    """Section 4: BERT-base, 12 layers of 768, with a memory of 64."""
    set_defaults(args, GMATBertConfig())
    base_architecture(args)


@register_model_architecture("gmat_bert", "gmat_bert_tiny")
def tiny(args: Any) -> None:
    """Four layers of 128, for a CPU."""
    tiny_sizes(args)
    base(args)


def set_layer_norm_eps(model: nn.Module, eps: float) -> None:
    """Sets the epsilon of all layer norms, which fairseq's layers do not take as an option."""
    module: Any
    for module in model.modules():
        if hasattr(module, "normalized_shape"):  # fairseq's layer norms are of two classes
            module.eps = eps
