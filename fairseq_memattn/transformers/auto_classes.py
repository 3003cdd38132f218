"""Registration with the Auto classes of transformers."""

from typing import Any

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer


def register(config: type[PreTrainedConfig], models: dict[Any, type[PreTrainedModel]]) -> None:
    """Registers a configuration, its tokenizer, and its model with each Auto class that loads it.

    models: for example {AutoModelForCausalLM: ABCForCausalLM}
    """
    AutoConfig.register(config.model_type, config, exist_ok=True)
    AutoTokenizer.register(config, MemAttnTokenizer, exist_ok=True)
    for auto_class, model in models.items():
        auto_class.register(config, model, exist_ok=True)
        if auto_class is AutoModelForCausalLM:
            # By these names Trainer knows that labels are one position later (label smoothing).
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = model.__name__
