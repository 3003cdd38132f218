"""Text for the pretraining of masked language models, in shards, for fairseq's masked_lm task."""

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random

from fairseq_memattn.data_prep.pipeline import pretrained_subwords
from fairseq_memattn.data_prep.pipeline.arguments import COMMON, add_numbers, add_options, positive
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline
from fairseq_memattn.data_prep.text.lines import progress, raw_lines
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing

SUFFIX = "txt"
DESCRIPTION = """\
Text for (continued) pretraining with fairseq's masked_lm task, in the pieces of RoBERTa, of BERT
(--bert-vocab) or of your own model.

  %(prog)s --train books.txt wikipedia.txt news.txt --valid held-out.txt --shards 20 --output mlm
  fairseq-train mlm/bin/0:mlm/bin/1:... --task masked_lm ...

The input has one sentence or paragraph a line, and an empty line between documents. Each document
is assigned to one shard at random (--seed). fairseq reads and shuffles one shard an epoch, so it
holds one shard in memory. The validation text is in bin/0, where fairseq expects it.

FOLDER/text/      the text: train0.txt, train1.txt, ..., valid.txt
FOLDER/pieces/    segmented
FOLDER/bin/       fairseq's data: 0/, 1/, ...
"""


def write_shards(sources: Sequence[Path], targets: Sequence[Path], seed: int) -> Counter[str]:
    """Write each document and an empty line to one of the targets; returns the counts.

    Raises MemAttnError for a target without a document.
    """
    random = Random(seed)
    counts = Counter({"documents": 0, "lines": 0})
    with write_all_or_nothing(targets) as files:
        for source in sources:
            lines = progress(raw_lines(source, counts), source.name, source)
            for has_text, document in groupby(lines, key=bool):
                if has_text:
                    counts["documents"] += 1
                    file = random.choice(files)
                    for line in document:
                        file.write(line + "\n")
                        counts["lines"] += 1
                    file.write("\n")
        for target, file in zip(targets, files, strict=True):
            if file.tell() == 0:
                raise MemAttnError(
                    f"{target}: none of the {counts['documents']} documents is in this shard; "
                    "choose fewer --shards (an empty line ends a document)"
                )
    return counts


@locks_output
def run(args: argparse.Namespace) -> None:
    pipeline = Pipeline(args.output, [SUFFIX], workers=args.workers, force=args.force)
    subwords = pretrained_subwords.find_subwords(args, args.output / "archives")
    shards = [f"train{number}" for number in range(args.shards)]
    texts = (("train", args.train, shards), ("valid", args.valid, ["valid"]))
    with pipeline.stages.all_or_none():
        for name, sources, splits in texts:
            targets = [pipeline.path("text", split, SUFFIX) for split in splits]
            work = partial(write_shards, sources, targets, args.seed)
            pipeline.stages.run(
                f"text-{name}", sources, targets, work, seed=args.seed, shards=len(targets)
            )
    for split in ("valid", *shards):
        pretrained_subwords.segment(pipeline, split, SUFFIX, subwords)
    pipeline.binarise_parts(args.shards, ["valid"], {"dictionary": subwords.dictionary})
    pipeline.forget_other_splits(["train", "valid", *shards])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for option, what in (("--train", "training text"), ("--valid", "validation text")):
        parser.add_argument(
            option, nargs="+", type=Path, required=True, metavar="FILE", help=f"{what}, UTF-8"
        )
    add_numbers(parser, {"--shards": (positive, 1, "number of shards")})
    add_options(parser, "--seed", *COMMON)
    pretrained_subwords.add_subword_arguments(parser)
