"""GLUE's larger tasks (MNLI, QNLI, QQP, SST-2) for fairseq's sentence_prediction task."""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fairseq_memattn.data_prep.pipeline import pretrained_subwords
from fairseq_memattn.data_prep.pipeline.archives import is_at, names
from fairseq_memattn.data_prep.pipeline.arguments import COMMON, add_options
from fairseq_memattn.data_prep.pipeline.binarise import forget_other_parts
from fairseq_memattn.data_prep.pipeline.download import Archive, obtain, official
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline, check_published
from fairseq_memattn.data_prep.text.lines import raw_lines
from fairseq_memattn.errors import MemAttnError

LABEL = "label"
SINGLE = {"train": "train.tsv", "valid": "dev.tsv"}
MATCHED = {"train": "train.tsv", "valid": "dev_matched.tsv", "valid1": "dev_mismatched.tsv"}


@dataclass(frozen=True)
class Task:
    """A task of GLUE.

    archive: the official archive
    files: the file of each split, by fairseq's name of the split
    sentences, label: the names of the columns
    labels: all labels, in the order of their numbers
    sizes: the published numbers of examples of each split, one of which it must have
    drop_uneven: whether to leave out rows whose number of fields differs from the header's
    """

    archive: Archive
    files: dict[str, str]
    sentences: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    sizes: dict[str, tuple[int, ...]]
    drop_uneven: bool = False


TASKS = {
    "MNLI": Task(
        official("MNLI.zip"),
        MATCHED,
        ("sentence1", "sentence2"),
        "gold_label",
        ("contradiction", "neutral", "entailment"),  # the order of roberta.large.mnli
        {"train": (392_702,), "valid": (9_815,), "valid1": (9_832,)},
    ),
    "QNLI": Task(
        official("QNLIv2.zip"),
        SINGLE,
        ("question", "sentence"),
        "label",
        ("entailment", "not_entailment"),
        {"train": (104_743,), "valid": (5_463,)},
    ),
    "QQP": Task(
        official("QQP-clean.zip"),
        SINGLE,
        ("question1", "question2"),
        "is_duplicate",
        ("0", "1"),
        # 363,849 in QQP.zip, which QQP-clean.zip has replaced.
        {"train": (363_846, 363_849), "valid": (40_430,)},
        # Questions with a line break; fairseq's preparation of GLUE leaves them out as well.
        drop_uneven=True,
    ),
    "SST-2": Task(
        official("SST-2.zip"),
        SINGLE,
        ("sentence",),
        "label",
        ("0", "1"),
        {"train": (67_349,), "valid": (872,)},
    ),
}
DESCRIPTION = """\
A task of GLUE (Wang et al., 2018) for fairseq's sentence_prediction task, on which RoBERTa is
finetuned. The numbers of examples are checked against the published ones.

  %(prog)s --task MNLI --output mnli
  %(prog)s --task SST-2 --output sst2 --archive SST-2.zip --gpt2-bpe-dir gpt2_bpe
      in the pieces of RoBERTa, GPT-2's BPE; without --gpt2-bpe-dir its files are downloaded

  %(prog)s --task QQP --output qqp --sentencepiece-model my/spm.model --dictionary my/bin/dict.txt
      for a model of your own, for example one trained on the output of own-corpus

valid is the development set; for MNLI it is the matched one, and valid1 is the mismatched one.
The test sets are left out, because their labels are not public. Rows of QQP that do not have six
fields are left out and counted; in the other tasks such a row is an error.

FOLDER/text/      sentences (input0, input1) and labels
FOLDER/pieces/    segmented sentences
FOLDER/bin/       fairseq's data: input0/, input1/, label/
"""


def wanted_files(name: str, archive: Path) -> dict[str, str]:
    """The files of a task in its archive, or in a folder of several tasks, and their names in raw/.

    A folder with the files of this task alone is accepted as well.
    """
    files = TASKS[name].files.values()
    inside = any(is_at(path, f"{name}/train.tsv") for path in names(archive))
    return {f"{name}/{file}" if inside else file: file for file in files}


def examples(task: Task, path: Path, counts: Counter[str]) -> Iterator[tuple[str, ...]]:
    """The sentences and the label of each row. Tabs separate fields; quotes have no meaning.

    Raises MemAttnError for a header without a needed column, for a row whose number of fields
    differs from the header's unless the task drops it, and for a label that the task does not have.
    """
    rows = (line.split("\t") for line in raw_lines(path, counts))
    header = next(rows, [])
    for name in (*task.sentences, task.label):
        if name not in header:
            found = " ".join(header)
            raise MemAttnError(f"{path}, line 1: no column {name} in the header {found!r}")
    columns = [header.index(name) for name in (*task.sentences, task.label)]
    for number, fields in enumerate(rows, start=2):
        if len(fields) != len(header):
            if not task.drop_uneven:
                raise MemAttnError(
                    f"{path}, line {number}: {len(fields)} fields, but the header has {len(header)}"
                )
            counts["rows with more or fewer fields than the header left out"] += 1
            continue
        *sentences, label = (fields[index].strip() for index in columns)
        if label not in task.labels:
            raise MemAttnError(
                f"{path}, line {number}: the label must be one of {', '.join(task.labels)}, "
                f"but is {label!r}"
            )
        if "" in sentences:
            counts["examples with an empty sentence, kept"] += 1
        yield *sentences, label


@locks_output
def run(args: argparse.Namespace) -> None:
    task = TASKS[args.task]
    inputs = [f"input{number}" for number in range(len(task.sentences))]
    downloads = args.output / "archives"
    pipeline = Pipeline(args.output, [*inputs, LABEL], workers=args.workers, force=args.force)
    subwords = pretrained_subwords.find_subwords(args, downloads)
    archive = obtain(task.archive, args.archive, downloads, args.unchecked)
    raw = pipeline.unpack(archive, wanted_files(args.task, archive))
    for split, source in zip(task.files, raw.values(), strict=True):
        rows = partial(examples, task, source)
        size = pipeline.write_text(split, [source], rows, unit="examples")["examples"]
        if not args.unchecked:
            published = task.sizes[split]
            check_published(split, size, "examples", f"{split} of {args.task}", published)
    for split in task.files:
        for part in inputs:
            pretrained_subwords.segment(pipeline, split, part, subwords)
    for part in inputs:
        pipeline.binarise("pieces", [*task.files], subwords.dictionary, part=part)
    # In the order of the task, and not by frequency.
    labels = pipeline.write_dictionary(
        "labels", "labels.txt", task.labels, (), "labels", labels=task.labels
    )
    pipeline.binarise("text", [*task.files], labels, part=LABEL)
    forget_other_parts(pipeline.folder / "bin", [*inputs, LABEL])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", required=True, choices=[*TASKS])
    add_options(parser, "--archive", "--unchecked")
    pretrained_subwords.add_subword_arguments(parser)
    add_options(parser, *COMMON)
