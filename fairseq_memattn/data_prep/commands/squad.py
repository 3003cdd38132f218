"""SQuAD 1.1 (Rajpurkar et al., 2016) for the tasks question_answering and span_answering."""

import argparse
from operator import attrgetter

from fairseq_memattn.data_prep.pipeline import questions as qa_pipeline
from fairseq_memattn.data_prep.pipeline import spans as qa_spans
from fairseq_memattn.data_prep.pipeline.download import official
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.text.passages import squad_passage
from fairseq_memattn.qa.answer_scores import SQUAD

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


ARCHIVES = {"train": official("train-v1.1.json"), "valid": official("dev-v1.1.json")}
SIZES = {"train": 87_599, "valid": 10_570}


@locks_output
def run(args: argparse.Namespace) -> None:
    corpus = qa_pipeline.Corpus(SQUAD, ARCHIVES, SIZES, attrgetter("context"))
    if args.spans:
        qa_spans.prepare(args, corpus, squad_passage)
        return
    qa_spans.check_unused(args)
    qa_pipeline.prepare(args, corpus)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    qa_pipeline.add_arguments(parser)
    qa_spans.add_arguments(parser)
