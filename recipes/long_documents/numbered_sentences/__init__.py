"""fairseq's transformer, and with GMAT's encoder, whose positions number a document's sentences.

Give this folder as `--user-dir`. It has `numbered_transformer` and `numbered_gmat_transformer`.
"""

from argparse import Namespace
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture

import fairseq_memattn
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models import gmat_transformer

from .positions import SentencePositions

fairseq_memattn.register()

SEPARATOR = "<sep>"


def number_sentences(model: Any, dictionary: Dictionary) -> Any:
    """The model with these positions. Raises MemAttnError for a dictionary without separator."""
    separator = dictionary.index(SEPARATOR)
    if separator == dictionary.unk():
        raise MemAttnError(f"the dictionary of the data has no {SEPARATOR}, which ends a sentence")
    for side in (model.encoder, model.decoder):
        size = side.embed_tokens.embedding_dim
        if size % 4:
            raise MemAttnError(f"--encoder-embed-dim must be a multiple of 4, but is {size}")
        side.embed_positions = SentencePositions(size, side.padding_idx, separator)
    return model


@register_model("numbered_transformer")
class NumberedTransformer(TransformerModel):
    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> Any:
        return number_sentences(super().build_model(args, task), task.source_dictionary)


@register_model("numbered_gmat_transformer")
class NumberedGMATTransformer(gmat_transformer.GMATTransformer):
    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> Any:
        return number_sentences(super().build_model(args, task), task.source_dictionary)


register_model_architecture("numbered_transformer", "numbered_transformer")(base_architecture)
register_model_architecture("numbered_gmat_transformer", "numbered_gmat_transformer")(
    gmat_transformer.base
)
