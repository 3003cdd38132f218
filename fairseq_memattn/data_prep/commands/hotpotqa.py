"""HotpotQA (Yang et al., 2018) for the tasks question_answering and span_answering."""

import argparse
from functools import partial

from fairseq_memattn.data_prep.pipeline import questions as qa_pipeline
from fairseq_memattn.data_prep.pipeline import spans as qa_spans
from fairseq_memattn.data_prep.pipeline.arguments import add_switches
from fairseq_memattn.data_prep.pipeline.download import official
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.text.passages import hotpot_passage
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.answer_scores import HOTPOTQA
from fairseq_memattn.qa.question_sets import HotpotQuestion

DESCRIPTION = """\
HotpotQA for --task question_answering.

  %(prog)s --output hotpotqa
      the distractor setting: train, and the development set as valid; the contexts of valid are
      ten paragraphs, including the gold ones

  %(prog)s --output hotpotqa --setting fullwiki
      the same train; valid and test have retrieved paragraphs, and the answers of test are not
      public

  %(prog)s --output hotpotqa --files train=my/train.json valid=my/dev.json

A context is all sentences of all paragraphs in their order; with --titles each paragraph begins
with its title. Training questions without text or without an answer are left out and counted.

With --spans the output is data for --task span_answering, which predicts answers as spans of the
context. This context is all paragraphs, each after `<a> yes no </a>` and its title. Training
questions whose answer does not occur there as whole words are left out as well. An adversarial set,
with records of the same format and other distractors, is passed with --files.

  %(prog)s --output hotpotqa --spans --gold-separated --repeat-question

"""
DESCRIPTION += qa_pipeline.LAYOUT


TRAIN = official("hotpot_train_v1.1.json")
SETTINGS = {
    "distractor": {"train": TRAIN, "valid": official("hotpot_dev_distractor_v1.json")},
    "fullwiki": {
        "train": TRAIN,
        "valid": official("hotpot_dev_fullwiki_v1.json"),
        "test": official("hotpot_test_fullwiki_v1.json"),
    },
}
SIZES = {"train": 90_447, "valid": 7_405, "test": 7_405}


def context(question: HotpotQuestion, titles: bool = False) -> str:
    """All sentences of all paragraphs, in their order (Al Adel, 2022, section 4).

    titles: whether each paragraph begins with its title; the paper mentions sentences only
    """
    texts = []
    for paragraph in question.paragraphs:
        texts += [paragraph.title] * titles
        texts += paragraph.sentences
    return " ".join(texts)


@locks_output
def run(args: argparse.Namespace) -> None:
    corpus = qa_pipeline.Corpus(
        HOTPOTQA, SETTINGS[args.setting], SIZES, partial(context, titles=args.titles)
    )
    if args.spans:
        prepare_spans(args, corpus)
        return
    qa_spans.check_unused(args)
    qa_pipeline.prepare(args, corpus, titles=args.titles)


def prepare_spans(args: argparse.Namespace, corpus: qa_pipeline.Corpus) -> None:
    if args.titles:
        raise MemAttnError("--titles is not needed with --spans, which includes the titles")
    if args.gold_separated and args.setting == "fullwiki" and not args.files:
        raise MemAttnError(
            "--gold-separated needs two paragraphs with supporting facts in every context; the "
            "contexts of --setting fullwiki do not always have them"
        )
    layout = {
        "gold_separated": args.gold_separated,
        "repeat_question": args.repeat_question,
        "seed": args.seed,
    }
    passage = partial(hotpot_passage, **layout)
    qa_spans.prepare(args, corpus, passage, verdicts="each paragraph", **layout)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    qa_pipeline.add_arguments(parser)
    parser.add_argument(
        "--setting",
        choices=[*SETTINGS],
        default="distractor",
        help="the contexts of valid and test (default: %(default)s)",
    )
    add_switches(parser, {"--titles": "begin each paragraph with its title"})
    switches = {
        "--gold-separated": "place one gold paragraph among the first three, the other among the "
        "last three, at random (GMAT's GS)",
        "--repeat-question": "repeat the question after every paragraph (GMAT's QR)",
    }
    add_switches(qa_spans.add_arguments(parser), switches)
