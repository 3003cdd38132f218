"""Reads the text for `memattn plot`: an example of a binarised subset, or a line of a file."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_memattn.cli.shared import segmentation
from fairseq_memattn.cli.shared.inputs import read_texts, refuse_unused, same_lines
from fairseq_memattn.cli.shared.models import Encoder
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import say
from fairseq_memattn.errors import check_least
from fairseq_memattn.files import read_lines
from fairseq_memattn.pieces import spell_bytes

if TYPE_CHECKING:
    from torch import Tensor

SUBSET = "test"
WORD = "\u2581"  # with which SentencePiece begins a word
PART = "@@"  # with which subword-nmt ends a piece within a word
INPUTS = {"src_tokens": "text", "prev_output_tokens": "target"}


class Line(NamedTuple):
    """A raw text and, for a model that translates, its translation."""

    source: str
    target: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = Options(parser.add_mutually_exclusive_group())
    which("--subset", f"split of the data (default: {SUBSET})")
    which.file(
        "--text",
        "file of raw text, one text per line, or - for the standard input; write the "
        "sentences of a window or document on one line, with the separators of training",
    )
    add = Options(parser)
    add.file("--target", "translations of --text, the decoder's input in models that translate")
    add.number(
        "--index",
        "number of the sentence (or block, for a language model) of --subset or of the line "
        "of --text, from 0 (default: %(default)s)",
        default=0,
    )
    segmentation.add_arguments(parser)


def title(args: argparse.Namespace) -> str:
    """The text's name: where it is from, and its index."""
    return f"{origin(args)} {args.index}"


def origin(args: argparse.Namespace) -> str:
    """The name of the subset or of the file."""
    if args.text is None:
        return str(args.subset or SUBSET)
    return "standard input" if str(args.text) == "-" else str(args.text.name)


def read_line(args: argparse.Namespace) -> Line | None:
    """The line of `--text` and `--target`; None if the text is from a subset."""
    check_least(args, "index", 0)
    if args.text is None:
        names = ("target", "sentencepiece_model", "subword_nmt")
        refuse_unused(args, names, "is for --text, which is not given")
        return None
    if str(args.text) == "-":
        sources = read_lines(Path("/dev/stdin"))
    else:
        sources = read_texts("--text", args.text, "src")
    targets = None if args.target is None else read_texts("--target", args.target, "ref")
    if targets is not None:
        same_lines("--target", args.target, targets, f"--text {args.text}", len(sources))
    if args.index >= len(sources):
        raise ValueError(
            f"--index must be below the {len(sources)} lines of --text {args.text}, but is "
            f"{args.index}"
        )
    line = Line(sources[args.index], None if targets is None else targets[args.index])
    for option, text in zip(("--text", "--target"), line, strict=True):
        if text is not None and not text.strip():
            raise ValueError(f"{option}, line {args.index + 1}: there is no text")
    return line


def of_subset(args: argparse.Namespace, task: Any) -> dict[str, Any]:
    """The model's input for a text of the subset, as in validation, without padding."""
    subset = args.subset or SUBSET
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    if args.index >= len(dataset):
        raise ValueError(
            f"--index must be from 0 to {len(dataset) - 1} in {subset}, but is {args.index}"
        )
    net_input: dict[str, Any] = dataset.collater([dataset[args.index]])["net_input"]
    for name in INPUTS.keys() & net_input.keys():
        # fairseq can pad single texts too, to lengths that suit a device.
        tokens = net_input[name]
        net_input[name] = tokens[tokens.ne(task.source_dictionary.pad())][None]
    return net_input


def of_line(
    line: Line, task: Any, settings: Any, sides: set[str], segment: Callable[[str], str]
) -> dict[str, Any]:
    """The model's input for a raw text, in the form of its training.

    settings: the task's; sides: which of "encoder" and "decoder" the model has
    segment: segments a sentence into the dictionary's pieces
    """
    import torch

    translates = len(sides) == 2
    if translates and line.target is None:
        raise ValueError("--text needs --target with a model that translates")
    if line.target is not None and not translates:
        raise ValueError("--target is for models that translate, which this one does not")
    if getattr(settings, "source_token", "") or getattr(settings, "target_token", ""):
        raise ValueError("--text does not work with a model that was trained with --source-token")
    cut = _by_sentence(segment, getattr(settings, "context_separator", None))
    dictionary = task.source_dictionary
    tokens = _encoded("--text", line.source, dictionary, cut)
    if line.target is not None:
        target = _encoded("--target", line.target, task.target_dictionary, cut)
        fed = {"prev_output_tokens": target.roll(1)[None]}
        if getattr(task, "takes_sequences", False):
            separator = settings.context_separator
            before = target.eq(task.target_dictionary.index(separator)).sum()
            sequences = _as_sequences(tokens, dictionary, separator)
            return sequences | {"target_context": before[None]} | fed
        return _batch(tokens) | fed
    if "encoder" in sides:
        return _batch(torch.cat([torch.tensor([dictionary.bos()]), tokens]))
    # With --add-bos-token, fairseq begins a text with both.
    bos = [dictionary.bos()] if getattr(settings, "add_bos_token", False) else []
    return _batch(torch.cat([torch.tensor([*bos, dictionary.eos()]), tokens[:-1]]))


def check_lengths(
    args: argparse.Namespace, net_input: dict[str, Any], limits: int | tuple[int, ...]
) -> None:
    """Raises ValueError for a text of more tokens than the model has positions."""
    limits = limits if isinstance(limits, tuple) else (limits,)
    names = [name for name in INPUTS if name in net_input]
    for name, limit in zip(names, limits, strict=True):
        length = net_input[name].shape[1]
        if length > limit:
            what = INPUTS[name]
            where = f"--{what}, line {args.index + 1}" if args.text else f"{what} of {title(args)}"
            raise ValueError(
                f"{where}: must have at most the {limit} tokens that the model takes, but has "
                f"{length}, end of line included"
            )


def labels(task: Any, net_input: dict[str, Any], kind: str) -> tuple[list[str], list[str]]:
    """The tokens that are written into a memory, and the tokens for which it is read.

    SentencePiece's pieces keep their mark at the beginning of a word.

    kind: of attention: "causal", "cross", whose queries are at the tokens that come next, or
        "encoder"
    """
    import torch

    source = _pieces(task.source_dictionary, net_input["src_tokens"][0])
    if kind == "encoder" or "prev_output_tokens" not in net_input:
        return source, source
    fed, dictionary = net_input["prev_output_tokens"][0], task.target_dictionary
    if kind == "causal":
        return (_pieces(dictionary, fed),) * 2
    return source, _pieces(dictionary, torch.cat([fed[1:], fed.new_tensor([dictionary.eos()])]))


def _pieces(dictionary: Any, tokens: "Tensor") -> list[str]:
    """The symbols; those of the bytes of a character are the character, and then empty."""
    return spell_bytes([dictionary[token] for token in tokens])


def sentences(task: Any, net_input: dict[str, Any]) -> list[str]:
    """The sequences of an input, each as text, the current one last."""
    dictionary = task.source_dictionary
    rows = [net_input["src_tokens"][0]]
    if "context_tokens" in net_input:
        rows = [*net_input["context_tokens"][0], *rows]
    return ["".join(words(dictionary, row[row.gt(dictionary.eos())])).strip() for row in rows]


def words(dictionary: Any, tokens: "Tensor") -> list[str]:
    """The tokens, with the spaces before them that are in the text."""
    pieces = _pieces(dictionary, tokens)
    if any(WORD in piece for piece in pieces):
        return [piece.replace(WORD, " ") for piece in pieces]
    begins = [" ", *("" if piece.endswith(PART) else " " for piece in pieces)]
    return [begin + piece.removesuffix(PART) for begin, piece in zip(begins, pieces, strict=False)]


def _by_sentence(segment: Callable[[str], str], separator: str | None) -> Callable[[str], str]:
    """Segments each sentence of a text that may be a window of several."""
    if separator is None:
        return segment
    between = f" {separator} "
    return lambda text: between.join(segment(sentence) for sentence in text.split(between))


def _encoded(option: str, text: str, dictionary: Any, cut: Callable[[str], str]) -> "Tensor":
    """The tokens of a text, eos at the end; prints the number of unknown tokens."""
    encoder = Encoder(dictionary, cut)
    tokens = encoder(text)
    if encoder.unknown:
        say(
            f"{encoder.unknown} of the {encoder.tokens} tokens of {option} are unknown to the "
            "model; was it segmented as in training?"
        )
    return tokens


def _batch(tokens: "Tensor") -> dict[str, Any]:
    import torch

    return {"src_tokens": tokens[None], "src_lengths": torch.tensor([len(tokens)])}


def _as_sequences(tokens: "Tensor", dictionary: Any, separator: str) -> dict[str, Any]:
    """A window of sentences for a model that takes them as separate sequences."""
    from fairseq.data.data_utils import collate_tokens

    ends = tokens.eq(dictionary.index(separator))
    *context, current = tokens.masked_fill(ends, dictionary.eos()).tensor_split(
        ends.nonzero().flatten() + 1
    )
    if not context:
        return _batch(current)
    rows = collate_tokens(context, dictionary.pad())[None]
    return _batch(current) | {
        "context_tokens": rows,
        "context_padding_mask": rows.eq(dictionary.pad()),
    }
