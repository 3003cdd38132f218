"""Registration with the Auto classes of transformers."""

from typing import Any

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel


def register(config: type[PreTrainedConfig], models: dict[Any, type[PreTrainedModel]]) -> None:
    """Registers a configuration, and its model with each Auto class that loads it.

    models: for example {AutoModelForCausalLM: ABCForCausalLM}
    """
    AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto_class, model in models.items():
        auto_class.register(config, model, exist_ok=True)
