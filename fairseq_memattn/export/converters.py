"""Which function makes a model of transformers of which model of fairseq."""

from collections.abc import Callable
from typing import Any

from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.models.transformer_lm import TransformerLanguageModel
from transformers import PreTrainedModel

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export import network_models, transformer_converter
from fairseq_memattn.models.bounded_llama import BoundedLlama
from fairseq_memattn.models.genbert import GMATGenBert
from fairseq_memattn.models.gmat_bert import GMATBert
from fairseq_memattn.models.t5 import T5

# For each class and its subclasses: from (model of fairseq, its task) to the same model of
# transformers. It copies the weights as they are: `way_back` finds each of them again, and a model
# with a weight that is transposed, joined or scaled cannot be imported from the folder.
CONVERTERS: dict[type, Callable[[Any, Any], PreTrainedModel]] = {
    GMATBert: network_models.from_gmat_bert,
    GMATGenBert: network_models.from_gmat_genbert,
    T5: network_models.from_t5,
    BoundedLlama: network_models.from_bounded_llama,
    TransformerModelBase: transformer_converter.translator,
    TransformerLanguageModel: transformer_converter.language_model,
    RobertaModel: transformer_converter.masked_language_model,
}


def converted(model: Any, task: Any) -> PreTrainedModel:
    """The model of transformers with the configuration and the weights of a model of fairseq.

    It is in evaluation mode. Raises MemAttnError for a model that has no counterpart.
    """
    for cls in type(model).__mro__:
        if cls in CONVERTERS:
            return CONVERTERS[cls](model, task).eval()
    names = ", ".join(sorted(cls.__name__ for cls in CONVERTERS))
    raise MemAttnError(
        f"a {type(model).__name__} cannot be exported: the models that can be are {names}, and "
        "those that derive from them"
    )
