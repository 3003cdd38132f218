"""The tokenizer of a model: the dictionaries of its task, and the segmentation of its data."""

from pathlib import Path
from typing import Any

from transformers import AddedToken

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.prepared import OPTION, Segmented
from fairseq_memattn.pieces import ADDED, foreign_symbols
from fairseq_memattn.transformers.pieces import GPT2, SENTENCEPIECE, SUBWORD_NMT, SentencePieces
from fairseq_memattn.transformers.tokenizer import FILES, MemAttnTokenizer
from fairseq_memattn.transformers.vocabulary import SPECIAL, Vocabulary

MASK = "<mask>"


def suffixes(task: Any, translates: bool) -> dict[str, str]:
    """The suffix of the text of each side: its language, or what the task has instead."""
    settings = settings_of(task)
    name = getattr(settings, "_name", None) or getattr(settings, "task", None)
    if name in ("question_answering", "span_answering"):
        return {"src": "context", "tgt": "answer" if translates else "context"}
    languages = [getattr(settings, f"{side}_lang", None) for side in ("source", "target")]
    if translates and all(languages):
        return dict(zip(("src", "tgt"), map(str, languages), strict=True))
    return {}


def tokenizer(
    task: Any, kind: str, segmented: Segmented, folder: Path, longest: int | None = None
) -> MemAttnTokenizer:
    """The tokenizer with the dictionaries of a task.

    kind: "seq2seq", "causal" or "masked"
    folder: an empty one, for the files of the tokenizer, which it needs later on
    longest: the maximum number of tokens of the model
    Raises MemAttnError if the segmentation does not fit the dictionaries.
    """
    settings = settings_of(task)
    source = _vocabulary(task.source_dictionary)
    target = _vocabulary(task.target_dictionary) if kind == "seq2seq" else source
    check_segmentation(segmented, source, target)
    files = {f"{side}_pieces_file": path for side, path in segmented.pieces.items()}
    files |= {f"{side}_truecase_file": path for side, path in segmented.truecase.items()}
    if files.get("tgt_pieces_file") == files.get("src_pieces_file"):
        files.pop("tgt_pieces_file", None)
    if segmented.encoder:
        files["encoder_file"] = segmented.encoder
    for name, one in {"src_vocab_file": source, "tgt_vocab_file": target}.items():
        if name == "src_vocab_file" or target != source:
            one.save(folder / FILES[name])
            files[name] = folder / FILES[name]
    options: dict[str, Any] = {name: str(path) for name, path in files.items()}
    options |= segmented.options() | _special_tokens(settings, kind, source)
    options |= _padding_sides(settings, kind)
    options |= {f"{side}_lang": name for side, name in suffixes(task, kind == "seq2seq").items()}
    if longest:
        options["model_max_length"] = longest
    made = MemAttnTokenizer(**options)
    made.add_tokens(_found_in_text(settings, source))
    return made


def check_segmentation(segmented: Segmented, source: Vocabulary, target: Vocabulary) -> None:
    """Raises MemAttnError if the dictionaries have other symbols than the segmentation gives."""
    files = " ".join(map(str, segmented.files()))
    for side, vocabulary in {"source": source, "target": target}.items():
        symbols = vocabulary.symbols[len(SPECIAL) :]
        if segmented.kind == SENTENCEPIECE:
            models = [SentencePieces(path) for path in dict.fromkeys(segmented.pieces.values())]
            pieces = [x for x in symbols if any(x in model for model in models)]
            what = foreign_symbols(symbols, {*pieces})
        elif segmented.kind == GPT2:
            what = foreign_symbols(symbols, {*filter(str.isdecimal, symbols)})
        elif segmented.kind == SUBWORD_NMT:
            what = "" if any(x.endswith("@@") for x in symbols) else "none ends in @@"
        else:
            return
        if what:
            raise MemAttnError(
                f"{OPTION} {files} is not the segmentation of the data: the symbols of the {side} "
                f"dictionary must be its pieces, but {what}"
            )


def settings_of(task: Any) -> Any:
    return getattr(task, "cfg", None) or task.args


def _vocabulary(dictionary: Any) -> Vocabulary:
    """Raises MemAttnError for a dictionary that does not begin as fairseq's do."""
    if tuple(dictionary.symbols[: len(SPECIAL)]) != SPECIAL:
        raise MemAttnError(
            f"the dictionary must begin with {', '.join(SPECIAL)}, but begins with "
            f"{', '.join(dictionary.symbols[: len(SPECIAL)])}"
        )
    return Vocabulary(list(dictionary.symbols), list(dictionary.count))


def _special_tokens(settings: Any, kind: str, vocabulary: Vocabulary) -> dict[str, Any]:
    """Around a sequence, as the tasks put them."""
    if kind == "seq2seq":
        return {"special_tokens_pattern": "eos"}
    if kind == "causal":
        with_bos = getattr(settings, "add_bos_token", False)
        return {"special_tokens_pattern": "bos", "bos_token": "<s>" if with_bos else "</s>"}
    masked = {"mask_token": MASK} if MASK in vocabulary.ids else {}
    name = getattr(settings, "_name", None)
    if name == "majority_tagging":
        return {"special_tokens_pattern": "none"} | masked
    if name == "span_answering":
        return {"special_tokens_pattern": "bos_eos"} | masked
    classes = {"cls_token": "<s>", "sep_token": "</s>"}
    return {"special_tokens_pattern": "cls_double_sep"} | classes | masked


def _padding_sides(settings: Any, kind: str) -> dict[str, str]:
    left = kind == "causal" or getattr(settings, "left_pad_source", False)
    target = getattr(settings, "left_pad_target", False)
    sides = {"padding_side": left, "tgt_padding_side": target}
    return {name: "left" if on_left else "right" for name, on_left in sides.items()}


def _found_in_text(settings: Any, vocabulary: Vocabulary) -> list[AddedToken]:
    """The separator of sentences, as a word, and sentinels."""
    separator = getattr(settings, "context_separator", None)
    found = [name for name in vocabulary.symbols if ADDED.fullmatch(name) and name != MASK]
    tokens = [AddedToken(name, normalized=False, special=False) for name in found]
    if separator:
        tokens.append(AddedToken(separator, single_word=True, normalized=False, special=False))
    return tokens
