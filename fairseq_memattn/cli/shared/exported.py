"""The translator of a folder that `memattn export` has written."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_memattn.errors import MemAttnError

if TYPE_CHECKING:
    import torch

    from fairseq_memattn.transformers.document_translator import DocumentTranslator


def load_translator(folder: Path, device: str | None) -> "DocumentTranslator":
    """The translator of a folder. device: its name; None is a GPU if there is one"""
    from transformers.utils.logging import disable_progress_bar

    from fairseq_memattn.transformers.document_translator import DocumentTranslator

    if not sys.stderr.isatty():
        disable_progress_bar()
    return DocumentTranslator.from_pretrained(folder, device=device_of(device))


def device_of(name: str | None) -> "torch.device":
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise MemAttnError(f"--device {name} cannot be used: {reason}") from None
    return device
