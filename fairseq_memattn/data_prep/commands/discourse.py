"""Write a generated English-Russian document corpus and its contrastive sets."""

import argparse
import hashlib
import json
from dataclasses import asdict, fields

from fairseq_memattn.data_prep.generated.discourse.discourse_corpus import (
    DISTANCES,
    SPLITS,
    Corpus,
    Options,
)
from fairseq_memattn.data_prep.generated.discourse.phenomena import PHENOMENA
from fairseq_memattn.data_prep.pipeline.arguments import add_numbers, add_options, positive
from fairseq_memattn.data_prep.pipeline.stages import Stages, locks_output
from fairseq_memattn.errors import MemAttnError, check_least
from fairseq_memattn.files import write_all_or_nothing

VERSION = 2  # increase it when the same options give other text
RECORD = "corpus.json"
DESCRIPTION = """\
Generate an English-Russian document corpus in which the translation of a sentence depends on a
sentence one to three lines earlier (--distances): the gender of a pronoun, the form of address, the
verb or noun that an ellipsis stands for, or the earlier translation of a name or noun.

  %(prog)s --output corpus --train-docs 2000 --valid-docs 100 --test-docs 100 --seed 1

OUT/{train,valid,test}.{en,ru,docid}   one sentence a line, and the document id of each line
OUT/contrast/{pronoun,deixis,ellipsis,cohesion}.json
                                       correct and incorrect translations of the last of four
                                       sentences (one more than the largest of --distances), in the
                                       format of Voita et al. (2019)
OUT/corpus.json                        options, counts and checksums

The same options give the same bytes on every machine. No document occurs in two splits, and no
source of a contrastive set occurs in a document.
"""


def output_names() -> list[str]:
    """The files of a corpus, the last of which describes it."""
    texts = [f"{split}.{suffix}" for split in SPLITS for suffix in ("en", "ru", "docid")]
    return [*(f"contrast/{phenomenon}.json" for phenomenon in PHENOMENA), *texts, RECORD]


def corpus_files(options: Options) -> list[str]:
    """The content of every file in the order of `output_names`."""
    corpus = Corpus(options)
    contents: list[str] = []
    counts: dict[str, dict[str, int]] = {}
    for phenomenon in PHENOMENA:
        groups = corpus.contrast(phenomenon)
        lines = (json.dumps(group, ensure_ascii=False) for group in groups)
        contents.append("[\n" + ",\n".join(lines) + "\n]\n")
        counts[phenomenon] = {"groups": len(groups)}
    for split in SPLITS:
        documents = corpus.split(split)
        rows = [
            (pair.en, pair.ru, str(number))
            for number, pairs in enumerate(documents, start=1)
            for pair in pairs
        ]
        contents += ["\n".join(column) + "\n" for column in zip(*rows, strict=True)]
        counts[split] = {"documents": len(documents), "sentences": len(rows)}
    digests = (hashlib.sha256(text.encode("utf-8")).hexdigest() for text in contents)
    record = {
        "version": VERSION,
        "options": asdict(options),
        "counts": counts,
        "sha256": dict(zip(output_names(), digests, strict=False)),
    }
    return [*contents, json.dumps(record, indent=2) + "\n"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    of_groups = (
        "contrastive groups of each phenomenon, rounded up to balanced sets (a multiple of twice "
        "the number of distances)"
    )
    of_names = (
        "weight of repeated first names in training stories; that of an elided verb is 1, of an "
        "elided noun 2, of a pronoun 3"
    )
    shortest = "sentences in the shortest document, more than the largest distance"
    numbers = {
        "--train-docs": (positive, 2000, "training documents"),
        "--valid-docs": (positive, 100, "validation documents"),
        "--test-docs": (positive, 100, "test documents"),
        "--contrast-groups": (positive, 200, of_groups),
        "--min-sentences": (positive, 6, shortest),
        "--max-sentences": (positive, 12, "sentences in the longest document"),
        "--name-weight": (positive, 1, of_names),
        "--noun-weight": (positive, 3, "weight of repeated nouns with two translations"),
    }
    add_options(parser, "--output", "--seed", "--force", output={"also": ["--out"]})
    add_numbers(parser, numbers)
    parser.add_argument(
        "--distances",
        type=positive,
        nargs="+",
        default=list(DISTANCES),
        metavar="N",
        help="numbers of sentences from a cue to the sentence that needs it. They are equally "
        "frequent in the contrastive sets; in documents, short ones are more frequent "
        "(default: 1 2 3)",
    )


@locks_output
def run(args: argparse.Namespace) -> None:
    options = Options(**{field.name: getattr(args, field.name) for field in fields(Options)})
    if len(set(options.distances)) < len(options.distances):
        raise MemAttnError(f"--distances must differ, but are {options.distances}")
    check_least(options, "min_sentences", options.context + 1)
    check_least(options, "max_sentences", options.min_sentences)
    outputs = [args.output / name for name in output_names()]

    def work() -> None:
        with write_all_or_nothing(outputs) as files:
            for file, text in zip(files, corpus_files(options), strict=True):
                file.write(text)

    made_from = {"corpus": VERSION, **asdict(options), "distances": list(options.distances)}
    Stages(args.output, args.force).run("corpus", [], outputs, work, **made_from)
    for name, count in json.loads(outputs[-1].read_text("utf-8"))["counts"].items():
        print(f"{name:9}" + ", ".join(f"{value} {unit}" for unit, value in count.items()))
