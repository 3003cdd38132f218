"""GenBERT with a global memory: the generation model of GMAT's numeric reasoning (section 3.2).

`gmat_genbert` has the size of BERT-base. `gmat_genbert_tiny` is small enough for a CPU.
"""

from argparse import ArgumentParser
from typing import Any, ClassVar

from fairseq.models import FairseqEncoderDecoderModel, register_model, register_model_architecture
from fairseq.models.roberta.model import base_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.abc_config import (
    add_dataclass_flags,
    as_namespace,
    check_joined,
    set_defaults,
    tiny_sizes,
)
from fairseq_memattn.models.gmat_bert import set_layer_norm_eps
from fairseq_memattn.models.gmat_config import GenBertConfig, check_positions, resolve_defaults
from fairseq_memattn.modules.genbert_decoder import GenBertDecoder, GenBertEncoder
from fairseq_memattn.modules.gmat_encoder import told_by_flags
from fairseq_memattn.networks.genbert import GenBERTConfig


@register_model("gmat_genbert")
class GMATGenBert(FairseqEncoderDecoderModel):
    """GMAT's BERT as encoder and decoder, with one set of weights.

    starts_from: the kind of model that `memattn convert` turns into a GenBERT
    """

    starts_from: ClassVar[str] = "a masked language model"

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        add_dataclass_flags(parser, GenBertConfig())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "GMATGenBert":
        args = as_namespace(args)
        source, target = task.source_dictionary, task.target_dictionary
        for dictionary in (source, target):
            # As in fairseq's masked_lm, whose checkpoints must fit.
            dictionary.add_symbol("<mask>")
        check_joined("--arch gmat_genbert", source, target)
        base(args)
        for side in ("source", "target"):
            check_positions(f"--max-{side}-positions", getattr(args, f"max_{side}_positions"))
        resolve_defaults(args, GenBertConfig(), args.max_source_positions)
        with told_by_flags():
            config = GenBERTConfig(
                sparsity=str(args.gmat_sparsity),
                num_hidden_layers=args.encoder_layers,
                decoder_layers=args.decoder_layers,
            )
        args.decoder_layers = config.decoder_layers
        if args.encoder_layerdrop:
            raise MemAttnError(
                f"--encoder-layerdrop must be 0 with --arch gmat_genbert, but is "
                f"{args.encoder_layerdrop}"
            )
        table = nn.Embedding(len(source), args.encoder_embed_dim, source.pad())
        encoder = GenBertEncoder(TransformerConfig.from_namespace(args), source, table)
        decoder = GenBertDecoder(
            target,
            table,
            layers=args.decoder_layers,
            activation=args.activation_fn,
            max_positions=args.max_target_positions,
        )
        model = cls(encoder, decoder)
        model.apply(init_bert_params)
        set_layer_norm_eps(model, args.gmat_layer_norm_eps)
        return model

    @staticmethod
    def weights_from(masked: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of a masked language model or of a GenBERT, by GenBERT's names."""
        renamed = {}
        for name, weight in masked.items():
            place = name.replace("encoder.sentence_encoder.", "encoder.", 1)
            renamed[place.replace("encoder.lm_head.", "decoder.lm_head.", 1)] = weight
        return renamed


@register_model_architecture("gmat_genbert", "gmat_genbert")
def base(args: Any) -> None:
    """Appendix A.1: BERT-base, 12 layers of 768."""
    set_defaults(args, GenBertConfig())
    longest = args.max_source_positions
    base_architecture(args)
    args.max_source_positions = longest  # base_architecture overwrites it


@register_model_architecture("gmat_genbert", "gmat_genbert_tiny")
def tiny(args: Any) -> None:
    """Four layers of 128, for a CPU."""
    tiny_sizes(args)
    base(args)
