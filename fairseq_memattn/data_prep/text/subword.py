"""Training of SentencePiece models, and segmentation with them."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sentencepiece
from tqdm import tqdm

from fairseq_memattn.data_prep.text.lines import RoundTrip, from_sentencepiece, read_lines
from fairseq_memattn.errors import MemAttnError, check_least
from fairseq_memattn.files import write_all_or_nothing
from fairseq_memattn.white_space import WHITE, with_spaces

MODEL_TYPES = ("unigram", "bpe")
SUFFIXES = ("model", "vocab")
LARGEST_SEED = 2**32 - 1
LONGEST = 4192  # bytes of a line that SentencePiece learns from by default
MOST_BYTES = 2**30  # SentencePiece's limit of that number
IDENTITY = "identity"
NORMALIZATIONS = (IDENTITY, "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
SPACES = "".join(f"{code:X}\t20\n" for code in WHITE if code != ord(" "))


@dataclass(frozen=True)
class Training:
    """How a model is trained. Raises MemAttnError for values that SentencePiece does not have.

    vocab_size: number of symbols, including `<unk>`, `<s>`, `</s>` and the separator
    separator: a token that is not segmented
    model_type: one of MODEL_TYPES
    normalization: one of NORMALIZATIONS; the model contains it
    max_sentence_length: longer lines are left out, with a warning
    split_digits: whether every digit is a piece of its own
    """

    vocab_size: int
    separator: str = "_eos"
    seed: int = 1
    model_type: str = MODEL_TYPES[0]
    normalization: str = IDENTITY
    max_sentence_length: int = LONGEST
    split_digits: bool = False

    def __post_init__(self) -> None:
        check_least(self, "seed", 0, LARGEST_SEED)
        check_least(self, "max_sentence_length", 10, MOST_BYTES)

    @staticmethod
    def of(args: argparse.Namespace) -> "Training":
        """The training that a command line asks for, by its options of these names."""
        names = [field.name for field in fields(Training)]
        given: dict[str, Any] = {name: getattr(args, name) for name in names if hasattr(args, name)}
        return Training(**given)

    def record(self) -> dict[str, Any]:
        """The values for the record of a stage; 1.0 did not have the last two."""
        values = asdict(self)
        later = {"max_sentence_length": LONGEST, "split_digits": False}
        return {x: value for x, value in values.items() if later.get(x, ...) != value}


def train(
    inputs: Sequence[Path], model: Path, training: Training, option: str = "--vocab-size"
) -> None:
    """Train a model on all inputs together; writes MODEL.model and MODEL.vocab.

    option: the name of the vocabulary's size in errors
    Raises MemAttnError for inputs that have no text or are too small for the vocabulary.
    """
    sentencepiece.set_random_generator_seed(training.seed)
    failures: list[BaseException] = []
    with TemporaryDirectory() as folder:
        trained = Path(folder, "trained")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_training_lines(inputs, training, failures),
                model_prefix=str(trained),
                vocab_size=training.vocab_size,
                model_type=training.model_type,
                character_coverage=1.0,
                # With SentencePiece's word-boundary mark, so that the separator is one token.
                user_defined_symbols=["\u2581" + training.separator],
                max_sentence_length=training.max_sentence_length,
                split_digits=training.split_digits,
                num_threads=1,
                minloglevel=1,
                **_rule(training.normalization, Path(folder)),
            )
        except (RuntimeError, ValueError) as error:
            if failures:
                raise failures[0] from None
            reason = str(error).rpartition("] ")[2].partition(" or decrease character_coverage")[0]
            size = f"{option} {training.vocab_size}"
            raise MemAttnError(f"{size} does not fit the text: {reason}") from None
        with write_all_or_nothing([Path(f"{model}.{suffix}") for suffix in SUFFIXES]) as files:
            for suffix, file in zip(SUFFIXES, files, strict=True):
                file.buffer.write(trained.with_suffix(f".{suffix}").read_bytes())


def _rule(normalization: str, folder: Path) -> dict[str, Any]:
    """The argument of SentencePiece's trainer. folder: for a file that it reads."""
    if normalization != IDENTITY:
        return {"normalization_rule_name": normalization}
    path = folder / "spaces.tsv"
    path.write_text(SPACES, encoding="utf-8")
    return {"normalization_rule_tsv": str(path)}


def load(model: Path, option: str = "--model") -> sentencepiece.SentencePieceProcessor:
    """A model. option: names it in errors. Raises MemAttnError for a file that is not a model."""
    if not model.is_file():
        raise MemAttnError(f"{option} {model}: no such file")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except RuntimeError:
        raise MemAttnError(f"{option} {model}: not a SentencePiece model") from None


def encode(model: Path, inputs: Sequence[Path], output: Path) -> Counter[str]:
    """Segment each input into output/NAME, line by line; returns the counts.

    Lines that their pieces do not give back are counted, and a warning names the first one.
    """
    processor = load(model)
    counts = Counter({"lines": 0})
    targets = [output / path.name for path in inputs]
    if len(set(targets)) < len(targets):
        raise MemAttnError(
            "--input: two files have the same name, so they would have the same output"
        )
    with write_all_or_nothing(targets) as files:
        for path, file in zip(inputs, files, strict=True):
            trip = RoundTrip(path, from_sentencepiece)
            for line in tqdm(read_lines(path), desc=path.name, unit=" lines", disable=None):
                pieces = " ".join(processor.encode(with_spaces(line), out_type=str))
                file.write(pieces + "\n")
                trip.add(line, pieces)
            counts["lines"] += trip.lines
            counts.update(trip.report())
    return counts


def _training_lines(
    inputs: Sequence[Path], training: Training, failures: list[BaseException]
) -> Iterator[str]:
    """The lines to train on.

    failures: gets an exception, of which SentencePiece makes another
    """
    longest = training.max_sentence_length
    try:
        learnt, left_out, first = 0, 0, ""
        for path in inputs:
            for number, line in enumerate(read_lines(path), start=1):
                line = with_spaces(_without(training.separator, line))
                size = len(line.encode())
                if size <= longest:
                    learnt += bool(line)
                    yield line
                    continue
                left_out += 1
                first = first or f"{path}, line {number}: has {size} bytes, but"
        if not learnt and not left_out:
            raise MemAttnError(f"{inputs[0]}: no text to train on")
        limit = f"SentencePiece learns from lines of at most --max-sentence-length {longest}"
        if not learnt:
            raise MemAttnError(f"{first} {limit}; no shorter line has text")
        if left_out:
            print(f"warning: {first} {limit}; left out: {left_out} lines", file=sys.stderr)
    except BaseException as error:
        failures.append(error)
        raise


def _without(separator: str, line: str) -> str:
    """A line without the separator, which is a symbol of the model already."""
    return " ".join(word for word in line.split() if word != separator)
