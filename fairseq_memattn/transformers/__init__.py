"""The models in transformers' format: `import fairseq_memattn.transformers` registers them.

After it, the Auto classes of transformers load a folder that `memattn export` wrote:
`AutoModelForCausalLM.from_pretrained(FOLDER)`. fairseq is not needed.
"""

from importlib.util import find_spec
from typing import Any

if find_spec("transformers") is None:
    raise ImportError(
        "fairseq_memattn.transformers needs transformers, which is missing: run "
        "`pip install 'fairseq-memattn[transformers]'`"
    )

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

from fairseq_memattn.transformers.decoder import (  # noqa: E402
    BoundedDecoderConfig,
    BoundedDecoderForCausalLM,
    BoundedDecoderModel,
)
from fairseq_memattn.transformers.gmat_genbert import GenBERTConfig, GenBERTForConditionalGeneration  # noqa: E402
from fairseq_memattn.transformers.gmat_modeling import (  # noqa: E402
    GMATConfig,
    GMATForMaskedLM,
    GMATForQuestionAnswering,
    GMATForTokenClassification,
    GMATModel,
)
from fairseq_memattn.transformers.t5mem_config import T5MemConfig  # noqa: E402
from fairseq_memattn.transformers.t5mem_seq2seq import T5MemForConditionalGeneration  # noqa: E402
from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer  # noqa: E402
from fairseq_memattn.transformers.transformer_config import BoundedTransformerConfig  # noqa: E402
from fairseq_memattn.transformers.transformer_models import (  # noqa: E402
    BoundedTransformerForCausalLM,
    BoundedTransformerForConditionalGeneration,
    BoundedTransformerForMaskedLM,
)


def register(
    config: type[PreTrainedConfig],
    models: dict[Any, type[PreTrainedModel]],
    tokenizer: Any = MemAttnTokenizer,
) -> None:
    """Registers a configuration, its tokenizer, and its model with each Auto class that loads it.

    models: for example {AutoModelForCausalLM: ABCForCausalLM}; tokenizer: None is any
    """
    AutoConfig.register(config.model_type, config, exist_ok=True)
    if tokenizer is not None:
        AutoTokenizer.register(config, tokenizer, exist_ok=True)
    for auto_class, model in models.items():
        auto_class.register(config, model, exist_ok=True)
        if auto_class is AutoModelForCausalLM:
            # By these names Trainer knows that labels are one position later (label smoothing).
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = model.__name__


register(
    BoundedTransformerConfig,
    {
        AutoModelForSeq2SeqLM: BoundedTransformerForConditionalGeneration,
        AutoModelForCausalLM: BoundedTransformerForCausalLM,
        AutoModelForMaskedLM: BoundedTransformerForMaskedLM,
    },
)
register(T5MemConfig, {AutoModelForSeq2SeqLM: T5MemForConditionalGeneration})
register(
    GMATConfig,
    {
        AutoModel: GMATModel,
        AutoModelForMaskedLM: GMATForMaskedLM,
        AutoModelForQuestionAnswering: GMATForQuestionAnswering,
        AutoModelForTokenClassification: GMATForTokenClassification,
    },
)
register(GenBERTConfig, {AutoModelForSeq2SeqLM: GenBERTForConditionalGeneration})
register(
    BoundedDecoderConfig,
    {AutoModel: BoundedDecoderModel, AutoModelForCausalLM: BoundedDecoderForCausalLM},
    tokenizer=None,
)
