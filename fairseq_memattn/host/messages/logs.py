"""Log lines and warnings that say nothing about a user's command."""

from __future__ import annotations

import functools
import logging
import os
import warnings
from typing import Any


def log_each_line_once() -> None:
    """Lets the progress bars of all epochs share what writes to --log-file.

    fairseq adds another one each epoch, so that the lines of epoch 9 are in the file nine times.
    """
    from fairseq.logging import progress_bar

    make = progress_bar.progress_bar

    @functools.wraps(make)
    def progress_bar_(*args: Any, log_file: str | None = None, **kwargs: Any) -> Any:
        open_files = (getattr(one, "baseFilename", "") for one in progress_bar.logger.handlers)
        if log_file is not None and os.path.abspath(log_file) in open_files:
            log_file = None
        return make(*args, log_file=log_file, **kwargs)

    progress_bar.progress_bar = progress_bar_


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
