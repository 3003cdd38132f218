"""Sentences with document ids to n-sentence windows, and a window back to its last sentence.

Line i of the output is line i of the input with up to n - 1 previous sentences of its document in
front of it, all joined by a separator token, so input and output have the same number of lines.
"""

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from tqdm import tqdm

if not __package__:  # run as `python data_prep/windows.py`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_prep.aligned import read_documents, uneven_counts
from data_prep.files import (
    DataError,
    read_lines,
    refuse_overwriting,
    run_command,
    write_all_or_nothing,
)

DESCRIPTION = """\
Turn text with document ids into n-sentence windows, or a windowed translation back into sentences.

  %(prog)s make --input corpus/train --langs en ru --output windows/train
      reads corpus/train.en, corpus/train.ru and corpus/train.docid (one sentence and one document
      id a line) and writes windows/train.en and windows/train.ru with as many lines
  %(prog)s last --input hypotheses.txt --source windows/test.en --output sentences.txt
      keeps what follows the last separator of each line
"""


def join_window(sentences: Iterable[str], separator: str) -> str:
    """Sentences of one document, oldest first, as one line."""
    return f" {separator} ".join(sentences)


def last_sentence(line: str, separator: str = "_eos") -> str:
    """What follows the last separator token of a line: the whole line where there is none."""
    tokens = line.split(" ")
    if separator not in tokens:
        return line.strip()
    after = len(tokens) - tokens[::-1].index(separator)
    return " ".join(tokens[after:]).strip()


def count_separators(line: str, separator: str = "_eos") -> int:
    """How many separator tokens a line holds: one less than its sentences."""
    return line.split().count(separator)


def checked_rows(paths: Sequence[Path], separator: str) -> Iterator[tuple[str, ...]]:
    """Rows of the line-aligned files `paths`, the document id last, or a DataError."""
    for sentence in read_documents(paths):
        for path, line in zip(paths[:-1], sentence.texts, strict=True):
            if separator in line.split():
                raise DataError(
                    f"{path}, line {sentence.line}: the text already holds the separator "
                    f"{separator!r}; choose another with --separator"
                )
        yield (*sentence.texts, sentence.document)


def windows(
    rows: Iterable[tuple[str, ...]], sentences: int = 4, separator: str = "_eos"
) -> Iterator[tuple[str, ...]]:
    """For each row (one sentence a language, then the document id), one window a language."""
    current = None
    history: deque[tuple[str, ...]] = deque(maxlen=sentences)
    for *texts, docid in rows:
        if docid != current:
            history.clear()
            current = docid
        history.append(tuple(texts))
        yield tuple(join_window(language, separator) for language in zip(*history, strict=True))


def make(
    prefix: str,
    languages: Sequence[str],
    output: str,
    sentences: int,
    separator: str,
    force: bool = False,
) -> int:
    """Write one file of windows a language; returns the number of lines."""
    if len(set(languages)) < len(languages):
        raise DataError(f"--langs must name each language once, but is {' '.join(languages)}")
    inputs = [Path(f"{prefix}.{suffix}") for suffix in (*languages, "docid")]
    outputs = [Path(f"{output}.{language}") for language in languages]
    refuse_overwriting(inputs, outputs, force)
    count = 0
    with write_all_or_nothing(outputs) as files:
        rows = tqdm(checked_rows(inputs, separator), unit=" lines", disable=None)
        for row in windows(rows, sentences, separator):
            count += 1
            for file, line in zip(files, row, strict=True):
                file.write(line + "\n")
        if count == 0:
            raise DataError(f"{inputs[0]}: no lines")
    return count


def last(
    hypotheses: Path, source: Path, output: Path, separator: str, force: bool = False
) -> list[int]:
    """Write the last sentence of each hypothesis.

    Returns the lines whose number of separators is not their windowed source's. Their last
    sentence is written all the same, so that line i stays the translation of line i.
    """
    refuse_overwriting([hypotheses, source], [output], force)
    wrong = []
    pairs = zip_longest(read_lines(hypotheses), read_lines(source))
    with write_all_or_nothing([output]) as [file]:
        for number, (hypothesis, window) in enumerate(pairs, start=1):
            if hypothesis is None or window is None:
                raise DataError(uneven_counts([hypotheses, source]))
            if count_separators(hypothesis, separator) != count_separators(window, separator):
                wrong.append(number)
            file.write(last_sentence(hypothesis, separator) + "\n")
    return wrong


def separator_token(value: str) -> str:
    """An argparse type: one token."""
    if value.split() != [value]:
        raise argparse.ArgumentTypeError(f"must be one token without spaces, but is {value!r}")
    return value


def positive(value: str) -> int:
    """An argparse type: an integer of at least 1."""
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, but is {value!r}")
    return int(value)


def parser(prog: str | None = None) -> argparse.ArgumentParser:
    """The command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog=prog, description=DESCRIPTION, formatter_class=formatter)
    commands = top.add_subparsers(dest="command", required=True)

    make_parser = commands.add_parser("make", help="sentences to windows")
    make_parser.add_argument(
        "--input",
        required=True,
        metavar="PREFIX",
        help="reads PREFIX.LANG for each language and PREFIX.docid",
    )
    make_parser.add_argument(
        "--langs",
        required=True,
        nargs="+",
        metavar="LANG",
        help="the suffixes of one text or of several line-aligned ones, e.g. `en ru`",
    )
    make_parser.add_argument(
        "--output", required=True, metavar="PREFIX", help="writes PREFIX.LANG for each language"
    )
    make_parser.add_argument(
        "--sentences",
        type=positive,
        default=4,
        metavar="N",
        help="sentences in a window, the current one included (default: 4)",
    )

    last_parser = commands.add_parser("last", help="windowed hypotheses to sentences")
    last_parser.add_argument(
        "--input", required=True, type=Path, metavar="FILE", help="one windowed hypothesis a line"
    )
    last_parser.add_argument(
        "--source",
        required=True,
        type=Path,
        metavar="FILE",
        help="the windows that were translated; they say how many sentences a line should have",
    )
    last_parser.add_argument("--output", required=True, type=Path, metavar="FILE")

    for command in (make_parser, last_parser):
        command.add_argument(
            "--separator",
            type=separator_token,
            default="_eos",
            metavar="TOKEN",
            help="the token between two sentences (default: _eos)",
        )
        command.add_argument("--force", action="store_true", help="replace files of --output")
    return top


def run(args: argparse.Namespace) -> None:
    """Do what the command line says."""
    if args.command == "make":
        count = make(
            args.input, args.langs, args.output, args.sentences, args.separator, args.force
        )
        print(f"{count} windows written to {args.output}.{{{','.join(args.langs)}}}")
    else:
        wrong = last(args.input, args.source, args.output, args.separator, args.force)
        if wrong:
            print(
                f"warning: {len(wrong)} lines of {args.input} have another number of "
                f"{args.separator!r} than {args.source}, the first at line {wrong[0]}; "
                "their text after the last one was kept",
                file=sys.stderr,
            )


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; returns the exit status. prog: the name that help shows."""
    return run_command(run, parser(prog).parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
