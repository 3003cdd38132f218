"""The vocabularies of translators saved by `transformers`, read without their tokenizers."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn import files
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers.pieces import SentencePieces

SPM = "sentencepiece.bpe.model"
FIRST = ("<s>", "<pad>", "</s>", "<unk>")


class Side(NamedTuple):
    """One side of a translator.

    ids: of its symbols; pieces: its SentencePiece model; language: as its files are named
    token: that sentences of this language begin with; None without
    """

    ids: dict[str, int]
    pieces: Path
    language: str
    token: str | None


def read(folder: Path, config: Mapping[str, Any], languages: Sequence[str | None]) -> list[Side]:
    """The source and the target.

    languages: of the two, or None for those that the folder names
    Raises MemAttnError for a language that is not given or that the model does not have.
    """
    settings = folder / "tokenizer_config.json"
    told = files.read_json(settings) if settings.is_file() else {}
    if config["model_type"] == "marian":
        names = [f"{side}_lang" for side in ("source", "target")]
        own_names = [told.get(name) for name in names]
        named = [one or name for one, name in zip(languages, own_names, strict=True)]
        _check_given(named)
        if named[0] == own_names[1] or named[1] == own_names[0]:
            raise MemAttnError(
                f"{settings}: the model translates from {own_names[0]} to {own_names[1]}, and not "
                f"from {named[0]} to {named[1]}"
            )
        own = [folder / "vocab.json"] * 2
        if told.get("separate_vocabs"):
            own[1] = folder / "target_vocab.json"
        spm = [folder / "source.spm", folder / "target.spm"]
        for path in spm:
            SentencePieces(path)
        rows = zip(map(_ids, own), spm, named, strict=True)
        return [Side(ids, pieces, str(name), None) for ids, pieces, name in rows]
    _check_given(languages)
    if told.get("legacy_behaviour"):
        raise MemAttnError(
            f"{settings}: legacy_behaviour must be false, with which sentences begin with their "
            "language"
        )
    ids = _with_languages(folder, str(config["model_type"]), told)
    sides = []
    for name in map(str, languages):
        token = next((one for one in (name, f"__{name}__") if one in ids), None)
        if token is None:
            raise MemAttnError(f"{folder}: the vocabulary has no language {name!r}")
        sides.append(Side(ids, folder / SPM, name, token))
    return sides


def _check_given(languages: Sequence[Any]) -> None:
    for side, name in zip(("source", "target"), languages, strict=True):
        if not name:
            raise MemAttnError(f"--{side}-lang must be given, as the folder does not name it")
    if languages[0] == languages[1]:
        raise MemAttnError(f"--target-lang must be another than --source-lang {languages[0]}")


def _ids(path: Path) -> dict[str, int]:
    content = files.read_json(path)
    if not isinstance(content, dict) or not all(isinstance(x, int) for x in content.values()):
        raise MemAttnError(f"{path}: not a vocabulary, which has an id for each symbol")
    return content


def _with_languages(folder: Path, model: str, told: Mapping[str, Any]) -> dict[str, int]:
    """The ids of M2M-100 (which has a vocab.json), NLLB and mBART-50: pieces, then languages.

    Their order, and the languages, are those of transformers' tokenizers.
    """
    if (folder / "vocab.json").is_file():
        ids = _ids(folder / "vocab.json")
        codes = _codes("m2m_100")[told.get("language_codes", "m2m100")]
        return ids | {f"__{code}__": len(ids) + number for number, code in enumerate(codes)}
    spm = SentencePieces(folder / SPM).processor
    pieces = [spm.id_to_piece(number) for number in range(3, len(spm))]
    codes = _codes("mbart50" if model == "mbart" else "nllb")
    symbols = [*FIRST, *pieces, *codes, "<mask>"]
    return {symbol: number for number, symbol in enumerate(symbols)}


def _codes(name: str) -> Any:
    return import_module(f"transformers.models.{name}.tokenization_{name}").FAIRSEQ_LANGUAGE_CODES
