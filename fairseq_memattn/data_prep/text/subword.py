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

from fairseq_memattn.data_prep.text.lines import RoundTrip, count_lines, progress, read_lines
from fairseq_memattn.errors import MemAttnError, check_least
from fairseq_memattn.files import write_all_or_nothing
from fairseq_memattn.pieces import BYTES, WHITE, WORD_BEGIN, join_pieces, with_spaces

MODEL_TYPES = ("unigram", "bpe")
SUFFIXES = ("model", "vocab")
LARGEST_SEED = 2**32 - 1
SAMPLE, LEAST_SAMPLE = 500_000, 101  # lines; SentencePiece has the minimum
LONGEST = 4192  # bytes of a line that SentencePiece learns from by default
MOST_BYTES = 2**30  # SentencePiece's limit of that number
IDENTITY = "identity"
NORMALIZATIONS = (IDENTITY, "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
MOST_CHARACTERS = 500  # different ones of a file, above which rare ones are spelled in bytes
COVERAGE = 0.9995  # of all characters, by SentencePiece's advice for such languages
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
    byte_fallback: whether characters without a piece become the pieces of their bytes in UTF-8;
        None for where an input has more than MOST_CHARACTERS different characters
    character_coverage: the share of all characters in the text that is covered by those that get a
        piece, the most frequent ones; by default COVERAGE with byte_fallback, and 1 without
    symbols: further tokens that are not segmented
    sample_lines: the most lines to learn from, drawn at random, which bounds the memory
    """

    vocab_size: int
    separator: str = "_eos"
    seed: int = 1
    model_type: str = MODEL_TYPES[0]
    normalization: str = IDENTITY
    max_sentence_length: int = LONGEST
    split_digits: bool = False
    byte_fallback: bool | None = False
    character_coverage: float | None = None
    symbols: tuple[str, ...] = ()
    sample_lines: int = SAMPLE

    def __post_init__(self) -> None:
        check_least(self, "seed", 0, LARGEST_SEED)
        check_least(self, "max_sentence_length", 10, MOST_BYTES)
        if self.character_coverage is not None:
            check_least(self, "character_coverage", 0.98, 1)  # SentencePiece's own limits
        check_least(self, "sample_lines", LEAST_SAMPLE, LARGEST_SEED)

    @property
    def whole(self) -> list[str]:
        """The tokens that are not segmented."""
        return [self.separator, *self.symbols]

    @staticmethod
    def of(args: argparse.Namespace) -> "Training":
        """The training that a command line asks for, by its options of these names."""
        names = [field.name for field in fields(Training)]
        given: dict[str, Any] = {name: getattr(args, name) for name in names if hasattr(args, name)}
        return Training(**given)

    def record(self) -> dict[str, Any]:
        """The values for the record of a stage; 1.0 had the first five."""
        values = asdict(self)
        later = {field.name: field.default for field in fields(self)[5:]}
        return {x: y for x, y in values.items() if y is not None and later.get(x, ...) != y}


def train(
    inputs: Sequence[Path], model: Path, training: Training, option: str = "--vocab-size"
) -> None:
    """Train a model on all inputs together; writes MODEL.model and MODEL.vocab.

    option: the name of the vocabulary's size in errors
    Raises MemAttnError for inputs that have no text or are too small for the vocabulary.
    """
    sentencepiece.set_random_generator_seed(training.seed)
    failures: list[BaseException] = []
    characters = _characters(inputs, training)
    with TemporaryDirectory() as folder:
        trained = Path(folder, "trained")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_training_lines(inputs, training, failures),
                model_prefix=str(trained),
                vocab_size=training.vocab_size,
                model_type=training.model_type,
                # With SentencePiece's word-boundary mark, so that each is one token.
                user_defined_symbols=[f"{WORD_BEGIN}{x}" for x in training.whole],
                max_sentence_length=training.max_sentence_length,
                split_digits=training.split_digits,
                num_threads=1,
                minloglevel=1,
                **characters,
                **_rule(training.normalization, Path(folder)),
                **_sample(inputs, training),
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


def _characters(inputs: Sequence[Path], training: Training) -> dict[str, Any]:
    """The arguments of SentencePiece's trainer for characters without a piece."""
    spelled = training.byte_fallback
    if spelled is None:
        spelled = any(has_many_characters(path) for path in inputs)
    coverage = training.character_coverage or (COVERAGE if spelled else 1.0)
    return {"byte_fallback": spelled, "character_coverage": coverage}


def has_many_characters(path: Path) -> bool:
    """Whether a text has more than MOST_CHARACTERS different characters."""
    found: set[str] = set()
    for line in read_lines(path):
        found.update(line)
        if len(found) > MOST_CHARACTERS:
            return True
    return False


def _rule(normalization: str, folder: Path) -> dict[str, Any]:
    """The argument of SentencePiece's trainer. folder: for a file that it reads."""
    if normalization != IDENTITY:
        return {"normalization_rule_name": normalization}
    path = folder / "spaces.tsv"
    path.write_text(SPACES, encoding="utf-8")
    return {"normalization_rule_tsv": str(path)}


def _sample(inputs: Sequence[Path], training: Training) -> dict[str, Any]:
    """The argument of SentencePiece's trainer for inputs of more lines than it learns from."""
    lines = sum(map(count_lines, inputs))
    if lines <= training.sample_lines:
        return {}
    shown = f"{training.sample_lines:,} of {lines:,} lines, drawn at random (--sample-lines)"
    print(f"SentencePiece learns from {shown}", flush=True)
    return {"input_sentence_size": training.sample_lines, "shuffle_input_sentence": True}


def load(model: Path, option: str = "--model") -> sentencepiece.SentencePieceProcessor:
    """A model. option: names it in errors. Raises MemAttnError for a file that is not a model."""
    if not model.is_file():
        raise MemAttnError(f"{option} {model}: no such file")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(model))
    except RuntimeError:
        raise MemAttnError(f"{option} {model}: not a SentencePiece model") from None


def all_pieces(model: Path) -> list[str]:
    """The pieces of a model without those that no text has, such as `<unk>`."""
    processor = load(model, "--sentencepiece-model")
    numbers = range(processor.get_piece_size())
    special = (processor.is_control, processor.is_unknown)
    return [processor.id_to_piece(n) for n in numbers if not any(one(n) for one in special)]


def spells(model: Path) -> bool:
    """Whether a model spells in bytes, so that any of its pieces may occur in a text."""
    return BYTES[0] in all_pieces(model)


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
            trip = RoundTrip(path, join_pieces)
            for line in progress(read_lines(path), path.name, path):
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
    longest, whole = training.max_sentence_length, training.whole
    try:
        learnt, left_out, first = 0, 0, ""
        for path in inputs:
            for number, line in enumerate(read_lines(path), start=1):
                # The model has these symbols already.
                words = [word for word in line.split() if word not in whole]
                line = with_spaces(" ".join(words))
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
