"""Joins the sentences of a parallel corpus into documents, for models that read whole documents.

    python recipes/long_documents/join.py PIECES --langs en de --output FOLDER

PIECES has {train,valid,test}.LANG, a segmented sentence a line. Writes files of the same names, a
document a line, with <sep> between two sentences, and {valid,test}.docid, the document of each
sentence. Documents of valid and test have --sentences consecutive sentences. Training documents
have 1, 2, 4, ... or --sentences, in a new order of the sentences for each of --passes; a size is
chosen with a probability of one over it, so that all sizes get as many tokens. dict.txt has the
entries of --dictionary and <sep>.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.files import read_lines, write_text

SEPARATOR = "<sep>"
Pair = tuple[str, ...]  # a sentence in each language


def read(folder: Path, split: str, languages: Sequence[str]) -> list[Pair]:
    """Raises ValueError for files of different lengths, and for a sentence with a separator."""
    files = [folder / f"{split}.{language}" for language in languages]
    texts = []
    for file in files:
        if not file.is_file():
            raise ValueError(f"there is no file {file}")
        texts.append(read_lines(file))
        for number, line in enumerate(texts[-1], start=1):
            if SEPARATOR in line.split():
                raise ValueError(f"{file}, line {number}: has {SEPARATOR}, which ends sentences")
    if len(set(map(len, texts))) > 1:
        sizes = ", ".join(f"{file}: {len(t)}" for file, t in zip(files, texts, strict=True))
        raise ValueError(f"not as many lines in all languages: {sizes}")
    return list(zip(*texts, strict=True))


def in_turn(pairs: Sequence[Pair], size: int) -> Iterator[Sequence[Pair]]:
    """Documents of `size` sentences, the last of what is left."""
    for begin in range(0, len(pairs), size):
        yield pairs[begin : begin + size]


def of_many_sizes(
    pairs: Sequence[Pair], most: int, passes: int, seed: int
) -> Iterator[Sequence[Pair]]:
    """Documents of 1, 2, 4, ... and of `most` sentences."""
    sizes = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
    generator = random.Random(seed)
    for _ in range(passes):
        mixed = generator.sample(pairs, len(pairs))
        begin = 0
        while begin < len(mixed):
            (size,) = generator.choices(sizes, [1 / size for size in sizes])
            yield mixed[begin : begin + size]
            begin += size


def joined(documents: Sequence[Sequence[Pair]], side: int) -> str:
    lines = (f" {SEPARATOR} ".join(pair[side] for pair in document) for document in documents)
    return "".join(f"{line}\n" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pieces", type=Path, help="folder of the sentences")
    parser.add_argument("--langs", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--sentences", type=int, default=140, help="of a document (default: 140)")
    parser.add_argument("--passes", type=int, default=8, help="over the corpus (default: 8)")
    parser.add_argument("--seed", type=int, default=1, help="of sizes and order (default: 1)")
    parser.add_argument("--dictionary", type=Path, help="of fairseq, of the pieces")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    args = parser.parse_args(argv)
    try:
        for option in ("sentences", "passes"):
            if getattr(args, option) < 1:
                raise ValueError(f"--{option} must be 1 or more, but is {getattr(args, option)}")
        splits = {
            split: read(args.pieces, split, args.langs) for split in ("train", "valid", "test")
        }
        documents = {
            split: list(in_turn(splits[split], args.sentences)) for split in ("valid", "test")
        }
        documents["train"] = list(
            of_many_sizes(splits["train"], args.sentences, args.passes, args.seed)
        )
        written = {
            args.output / f"{split}.{language}": joined(documents[split], side)
            for split in splits
            for side, language in enumerate(args.langs)
        }
        for split in ("valid", "test"):
            numbers = [n for n, found in enumerate(documents[split]) for _ in found]
            written[args.output / f"{split}.docid"] = "".join(f"{n}\n" for n in numbers)
        if args.dictionary:
            entries = [line for line in read_lines(args.dictionary) if "madeupword" not in line]
            lines = [*entries, f"{SEPARATOR} 1"]
            written[args.output / "dict.txt"] = "".join(f"{line}\n" for line in lines)
        args.output.mkdir(parents=True, exist_ok=True)
        given = [args.pieces / path.name for path in written]
        check_outputs({f"--output {path}": path for path in written}, given)
        for path, text in written.items():
            write_text(path, text)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(", ".join(f"{split}: {len(found)} documents" for split, found in documents.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
