"""SQuAD 1.1 (Rajpurkar et al., 2016) for the tasks question_answering and span_answering."""

import argparse

from fairseq_memattn.data_prep.pipeline import questions as qa_pipeline
from fairseq_memattn.data_prep.pipeline import spans as qa_spans
from fairseq_memattn.data_prep.pipeline.download import Archive
from fairseq_memattn.data_prep.pipeline.outputs import locks_output
from fairseq_memattn.data_prep.text.passages import squad_passage
from fairseq_memattn.qa.answer_scores import SQUAD
from fairseq_memattn.qa.question_sets import SquadQuestion

HOST = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
PAGE = "https://rajpurkar.github.io/SQuAD-explorer"
DESCRIPTION = """\
SQuAD 1.1 for --task question_answering; valid is the development set.

  %(prog)s --output squad
  %(prog)s --output squad --files train=my/train.json valid=my/dev.json
  %(prog)s --output squad --spans

The training answer is the first accepted one. Training questions without text or without an
answer are left out and counted. With --spans the output is data for --task span_answering, which
predicts answers as spans of the context. An answer that is not at its answer_start is an error.

"""
DESCRIPTION += qa_pipeline.LAYOUT


def official(name: str, size: int, digest: str) -> Archive:
    """One of SQuAD's files."""
    return Archive(name, PAGE, f"{HOST}/{name}", size, f"sha256:{digest}")


# Sizes, SHA-256 and numbers of questions are from Hugging Face's datasets library.
ARCHIVES = {
    "train": official(
        "train-v1.1.json",
        30288272,
        "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
    ),
    "valid": official(
        "dev-v1.1.json",
        4854279,
        "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
    ),
}
SIZES = {"train": 87_599, "valid": 10_570}


def context(question: SquadQuestion) -> str:
    """The paragraph that the question is about."""
    return question.context


@locks_output
def run(args: argparse.Namespace) -> None:
    """From JSON to bin/."""
    corpus = qa_pipeline.Corpus(SQUAD, ARCHIVES, SIZES, context)
    if args.spans:
        qa_spans.prepare(args, corpus, squad_passage)
        return
    qa_spans.check_unused(args)
    qa_pipeline.prepare(args, corpus)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    qa_pipeline.add_arguments(parser)
    qa_spans.add_arguments(parser)
