"""Loads causal language models of transformers, and their text as tokens."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_memattn.cli.shared.models import find_device
from fairseq_memattn.errors import MemAttnError

if TYPE_CHECKING:
    from torch import Tensor


def gguf_of(folder: Path) -> dict[str, str]:
    """The argument of `from_pretrained` for a folder whose model is a GGUF file.

    Raises MemAttnError for a folder without a model.
    """
    if not folder.is_dir():
        raise MemAttnError(f"{folder}: there is no such folder")
    if (folder / "config.json").is_file():
        return {}
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise MemAttnError(
            f"{folder}: must have a config.json or one .gguf file, but has {len(files)} of these"
        )
    return {"gguf_file": files[0].name}


def load_causal(folder: Path, device: str | None = None) -> tuple[Any, Any]:
    """The model in float32, in evaluation mode, and its tokenizer.

    Raises MemAttnError for a folder that transformers does not load, and for a translator.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    import fairseq_memattn.transformers  # noqa: F401, which registers the models

    if not sys.stderr.isatty():
        disable_progress_bar()
    chosen = find_device(device)
    given: Any = {**gguf_of(folder), "local_files_only": True}
    try:
        if AutoConfig.from_pretrained(folder, **given).is_encoder_decoder:
            raise MemAttnError(
                f"{folder}: must be a causal model, but has an encoder and a decoder, which "
                "memattn translate reads"
            )
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **given)
        tokenizer = AutoTokenizer.from_pretrained(folder, **given)
    except (OSError, ValueError) as error:
        raise MemAttnError(f"{folder}: {' '.join(str(error).split())}") from None
    # transformers does not save a model that knows to be quantised; these weights are not.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model.to(chosen).eval(), tokenizer


def learned_positions(model: Any) -> int | None:
    """The longest sequence of a model with an embedding of each position, such as GPT-2."""
    from torch.nn import Embedding

    most = getattr(model.config, "max_position_embeddings", None)
    words, modules = model.get_input_embeddings(), model.modules()
    sizes = {x.num_embeddings for x in modules if isinstance(x, Embedding) and x is not words}
    # OPT has two more.
    return most if most and sizes & {most, most + 2} else None


def read_tokens(files: Iterable[Path], tokenizer: Any) -> "Tensor":
    """The tokens (N,) of texts, with the end symbol between two of them, if there is one."""
    import torch

    ids: list[int] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise MemAttnError(f"{file}: not UTF-8 text: {error.reason}") from None
        if ids and tokenizer.eos_token_id is not None:
            ids.append(tokenizer.eos_token_id)
        ids += tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return torch.tensor(ids)
