"""Windows of n sentences from sentences with document ids, and the last sentence of a window.

Line i of the output is line i of the input preceded by up to n - 1 earlier sentences of its
document, joined by a separator token. Input and output have the same number of lines.
"""

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from tqdm import tqdm

from fairseq_memattn.data_prep.pipeline.argument_types import positive, separator_token
from fairseq_memattn.data_prep.pipeline.files import (
    DataError,
    read_lines,
    refuse_overwriting,
    run_command,
    write_all_or_nothing,
)
from fairseq_memattn.data_prep.text.aligned import read_documents, uneven_counts

DESCRIPTION = """\
Convert text with document ids to windows of n sentences, or translations of windows to sentences.

  %(prog)s make --input corpus/train --langs en ru --output windows/train
      reads corpus/train.en, corpus/train.ru and corpus/train.docid (one sentence and one document
      id a line) and writes windows/train.en and windows/train.ru with as many lines
  %(prog)s last --input hypotheses.txt --source windows/test.en --output sentences.txt
      keeps the text after the last separator of each line
"""


def join_window(sentences: Iterable[str], separator: str) -> str:
    """Sentences of one document, oldest first, as one line."""
    return f" {separator} ".join(sentences)


def last_sentence(line: str, separator: str = "_eos") -> str:
    """The text after the last separator token of a line; the whole line if there is none."""
    tokens = line.split(" ")
    if separator not in tokens:
        return line.strip()
    after = len(tokens) - tokens[::-1].index(separator)
    return " ".join(tokens[after:]).strip()


def count_separators(line: str, separator: str = "_eos") -> int:
    """The number of separator tokens in a line, one less than the number of its sentences."""
    return line.split().count(separator)


def checked_rows(paths: Sequence[Path], separator: str) -> Iterator[tuple[str, ...]]:
    """Rows of line-aligned files, the document id last. Raises DataError for wrong input."""
    for sentence in read_documents(paths):
        for path, line in zip(paths[:-1], sentence.texts, strict=True):
            if separator in line.split():
                raise DataError(
                    f"{path}, line {sentence.line}: the text already contains the separator "
                    f"{separator!r}; choose another with --separator"
                )
        yield (*sentence.texts, sentence.document)


def windows(
    rows: Iterable[tuple[str, ...]], sentences: int = 4, separator: str = "_eos"
) -> Iterator[tuple[str, ...]]:
    """For each row (a sentence in each language, the document id last), a window a language."""
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

    Returns the lines whose number of separators differs from that of the source window. Their
    last sentence is written as well, so that line i remains the translation of line i.
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


def parser(prog: str | None = None) -> argparse.ArgumentParser:
    """The command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog=prog, description=DESCRIPTION, formatter_class=formatter)
    commands = top.add_subparsers(dest="command", required=True)

    make_parser = commands.add_parser("make", help="convert sentences to windows")
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
        help="suffixes of one text or of several line-aligned texts, e.g. `en ru`",
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

    last_parser = commands.add_parser("last", help="convert translated windows to sentences")
    last_parser.add_argument(
        "--input", required=True, type=Path, metavar="FILE", help="one translated window a line"
    )
    last_parser.add_argument(
        "--source",
        required=True,
        type=Path,
        metavar="FILE",
        help="the source windows; their numbers of sentences are compared with the translations",
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
        command.add_argument(
            "--force", action="store_true", help="replace existing files of --output"
        )
    return top


def run(args: argparse.Namespace) -> None:
    """Run the command line."""
    if args.command == "make":
        count = make(
            args.input, args.langs, args.output, args.sentences, args.separator, args.force
        )
        print(f"{count} windows written to {args.output}.{{{','.join(args.langs)}}}")
    else:
        wrong = last(args.input, args.source, args.output, args.separator, args.force)
        if wrong:
            print(
                f"warning: in {len(wrong)} lines of {args.input} the number of {args.separator!r} "
                f"differs from {args.source}, first in line {wrong[0]}; "
                "the text after the last one was kept",
                file=sys.stderr,
            )


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; returns the exit status. prog: the name that help shows."""
    return run_command(run, parser(prog).parse_args(argv))
