"""Preprocessing with Moses' rules, as sacremoses implements them, and its inverse."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from tqdm import tqdm

from fairseq_memattn.data_prep.pipeline.argument_types import positive
from fairseq_memattn.data_prep.pipeline.files import (
    DataError,
    read_lines,
    refuse_overwriting,
    run_command,
    write_all_or_nothing,
)
from fairseq_memattn.data_prep.text.lines import LineFunction, rewrite

NEEDED = "sacremoses==0.2.0"
DESCRIPTION = """\
Convert tokenised and segmented translations to plain text.

  %(prog)s detokenise --lang en --capitalise --input hypotheses.txt --output plain.txt
      joins the subwords of subword-nmt and the tokens of Moses; line i of the output is line i
      of the input
"""


def sacremoses() -> ModuleType:
    """The library. Raises DataError where it is not installed."""
    try:
        import sacremoses as library
    except ImportError:
        raise DataError(
            f"sacremoses is not installed; run `python -m pip install {NEEDED}`"
        ) from None
    return library


def version() -> str:
    """The version of sacremoses; the text depends on it."""
    return str(sacremoses().__version__)


def tokeniser(language: str, printable_only: bool = False) -> LineFunction:
    """Moses' normalize-punctuation, then `tokenizer -a`, which escapes & | < > ' " [ ].

    printable_only: apply remove-non-printing-char in between, which replaces every character of
        Unicode's categories C by a space
    """
    library = sacremoses()
    import regex  # a requirement of sacremoses

    normaliser = library.MosesPunctNormalizer(lang=language)
    tokens = library.MosesTokenizer(lang=language)
    unprintable = regex.compile(r"\p{C}")

    def function(line: str) -> str:
        line = normaliser.normalize(line)
        if printable_only:
            line = unprintable.sub(" ", line)
        return str(tokens.tokenize(line, aggressive_dash_splits=True, return_str=True))

    return function


def learn_truecaser(source: Path, model: Path) -> Counter[str]:
    """Count the cases of words within sentences; returns the number of lines.

    source: tokenised text; model: where to write Moses' format
    """
    truecaser = sacremoses().MosesTruecaser()
    counts: Counter[str] = Counter()

    def sentences() -> Iterator[list[str]]:
        for line in tqdm(read_lines(source), desc=str(model), unit=" lines", disable=None):
            counts["lines"] += 1
            yield line.split()

    truecaser.train(sentences())
    with TemporaryDirectory() as folder, write_all_or_nothing([model]) as [file]:
        truecaser.save_model(str(Path(folder, "model")))
        file.write(Path(folder, "model").read_text(encoding="utf-8"))
    return counts


def truecaser(model: Path) -> LineFunction:
    """Moses' truecase: the first word of a sentence is spelt as within sentences.

    model: what `learn_truecaser` wrote
    """
    cases = sacremoses().MosesTruecaser(str(model))
    # As in Moses, known spellings within a sentence remain; sacremoses' default differs.
    return lambda line: str(cases.truecase(line, return_str=True, use_known=True))


def detokeniser(language: str, capitalise: bool = False) -> LineFunction:
    """Plain text from tokens: subwords joined at "@@ ", words at "@-@", entities unescaped.

    capitalise: begin sentences with a capital, for text that was truecased
    """
    library = sacremoses()
    cases = library.MosesDetruecaser()
    tokens = library.MosesDetokenizer(lang=language)

    def function(line: str) -> str:
        line = f"{line} ".replace("@@ ", "").rstrip(" ")
        if capitalise:
            line = cases.detruecase(line, return_str=True)
        return str(tokens.detokenize(line.split()))

    return function


def parser(prog: str | None = None) -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog=prog, description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command = top.add_subparsers(dest="command", required=True).add_parser(
        "detokenise", help="convert tokens, segmented or not, to plain text"
    )
    command.add_argument("--lang", required=True, help="the language of the text: en, de, es, ...")
    command.add_argument(
        "--capitalise",
        action="store_true",
        help="begin sentences with a capital letter, for IWSLT14",
    )
    command.add_argument("--input", required=True, type=Path, metavar="FILE")
    command.add_argument("--output", required=True, type=Path, metavar="FILE")
    command.add_argument(
        "--workers", type=positive, default=1, metavar="N", help="number of processes (default: 1)"
    )
    return top


def run(args: argparse.Namespace) -> None:
    """Run the command line."""
    refuse_overwriting([args.input], [args.output])
    make = partial(detokeniser, args.lang, args.capitalise)
    counts = rewrite(args.input, args.output, make, args.workers)
    print(f"{counts['lines']} lines written to {args.output}")


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; returns the exit status. prog: the name that help shows."""
    return run_command(run, parser(prog).parse_args(argv))
