"""transformers' own tokenizers of Marian, M2M-100, NLLB and mBART-50, for an imported translator.

`translator_vocabularies` reads them.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from torch import Tensor
from transformers import M2M100Tokenizer, MarianTokenizer, MBart50Tokenizer, NllbTokenizer
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M_LANGUAGES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_LANGUAGES

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.prepared import Segmented
from fairseq_memattn.export.task_tokenizer import settings_of
from fairseq_memattn.files import write_text

SPM = "sentencepiece.bpe.model"
OF_M2M = re.compile("__(.+)__")


def write(config: Any, task: Any, segmented: Segmented, rows: list[Tensor], folder: Path) -> None:
    """config: of the model; rows: our symbols in its order, of either side"""
    pieces = [segmented.pieces["src"], segmented.pieces.get("tgt", segmented.pieces["src"])]
    settings = settings_of(task)
    if config.model_type == "marian":
        made = marian(config, task, pieces, rows, folder)
    else:
        shutil.copyfile(pieces[0], folder / SPM)
        tokens: list[Any] = [
            getattr(settings, f"{side}_token", None) for side in ("source", "target")
        ]
        if not all(tokens):
            raise MemAttnError("--original is for a task with --source-token and --target-token")
        kind = mbart if config.model_type == "mbart" else nllb
        kind = m2m if OF_M2M.fullmatch(tokens[0]) else kind
        languages = [OF_M2M.sub(r"\1", token) for token in tokens]
        options = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
        options["model_max_length"] = config.max_position_embeddings
        made = kind(task.source_dictionary.symbols, settings.context_separator, folder, options)
    made.save_pretrained(folder)


def marian(config: Any, task: Any, pieces: list[Path], rows: list[Tensor], folder: Path) -> Any:
    sides = [task.source_dictionary, task.target_dictionary]
    names = ["vocab.json", "target_vocab.json"]
    shared = config.share_encoder_decoder_embeddings
    for name, words, own in list(zip(names, sides, rows, strict=True))[: 1 if shared else 2]:
        write_ids(folder / name, [words.symbols[row] for row in own.tolist()])
    for name, path in zip(("source.spm", "target.spm"), pieces, strict=True):
        shutil.copyfile(path, folder / name)
    settings = settings_of(task)
    separator = getattr(settings, "context_separator", None)
    options: dict[str, Any] = {
        **{"source_spm": str(folder / "source.spm"), "target_spm": str(folder / "target.spm")},
        **{"vocab": str(folder / "vocab.json"), "separate_vocabs": not shared},
        "target_vocab_file": None if shared else str(folder / "target_vocab.json"),
        **{f"{side}_lang": getattr(settings, f"{side}_lang") for side in ("source", "target")},
        "model_max_length": config.max_position_embeddings,
        "additional_special_tokens": [separator] if separator else [],
    }
    return MarianTokenizer(**options)


def m2m(symbols: list[str], separator: str, folder: Path, options: dict[str, Any]) -> Any:
    """symbols: of our dictionary, whose last one is the separator of sentences"""
    languages = [found[1] for found in map(OF_M2M.fullmatch, symbols) if found]
    codes = [name for name, known in M2M_LANGUAGES.items() if known == languages]
    write_ids(folder / "vocab.json", symbols[: symbols.index(f"__{languages[0]}__")])
    last = AddedToken(separator, special=True, normalized=False)
    return M2M100Tokenizer(
        str(folder / "vocab.json"),
        str(folder / SPM),
        language_codes=codes[0],
        added_tokens_decoder={len(symbols) - 1: last},
        additional_special_tokens=[separator],
        **options,
    )


def nllb(symbols: list[str], separator: str, folder: Path, options: dict[str, Any]) -> Any:
    """Of SentencePiece's model transformers reads merges and normalisation, but no languages."""
    read = NllbTokenizer.from_pretrained(folder).backend_tokenizer
    merges: list[Any] = [tuple(pair) for pair in json.loads(read.to_str())["model"]["merges"]]
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    last = AddedToken(separator, special=True, normalized=False, lstrip=True)
    special = [*NLLB_LANGUAGES, last]
    made = NllbTokenizer(ids, merges, additional_special_tokens=special, **options)
    made.backend_tokenizer.normalizer = read.normalizer
    return made


def mbart(symbols: list[str], separator: str, folder: Path, options: dict[str, Any]) -> Any:
    """The separator of sentences has the place of <mask>, which is last and not in text."""
    return MBart50Tokenizer.from_pretrained(folder, mask_token=separator, **options)


def write_ids(path: Path, symbols: list[str]) -> None:
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    write_text(path, json.dumps(ids, ensure_ascii=False))
