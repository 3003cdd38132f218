"""Warnings that say nothing about a user's command."""

import logging
import warnings


def quiet_known_warnings() -> None:
    """Silence what fairseq's older calls of hydra, torch and numpy make those warn about.

    None of it says anything about a user's command, and it hides what does. Commands that import
    fairseq before the plugin have its root logger, which shows all messages, those of hydra too.
    """
    logging.getLogger("hydra").setLevel(logging.INFO)
    for message in (
        r"hydra\.experimental\.\w+\(\) is no longer experimental",
        r"\nThe version_base parameter is not specified",
        r"In '.*': Usage of deprecated keyword in package header",
        r"\n'.*' is validated against ConfigStore schema",
        r"\nThe strict flag in the compose API is deprecated",
        r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated",
        r"Using (a )?non-full backward hook",
        r"'pin_memory' argument is set as true but no accelerator is found",
        r"Support for mismatched key_padding_mask and attn_mask is deprecated",
    ):
        warnings.filterwarnings("ignore", message=message)
    # The targets before last, which no model reads, of a block with a single token
    blocks = r"fairseq\.data\.token_block_dataset"
    warnings.filterwarnings("ignore", message="overflow encountered", module=blocks)
