"""Attention weights, which the models do not return: bounded memories have no weights of tokens."""

from transformers import PreTrainedConfig


def check_attentions(config: PreTrainedConfig, output_attentions: bool | None) -> None:
    """Raises ValueError where attention weights are asked for, here or in the configuration."""
    if config.output_attentions if output_attentions is None else output_attentions:
        raise ValueError("`output_attentions` must not be True: the weights are not returned.")
