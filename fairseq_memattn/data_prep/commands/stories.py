"""Generated stories with questions that need several facts, for --task question_answering.

The kinds of questions are those of the tasks 1 to 3 of bAbI (Weston et al., 2015, "Towards
AI-Complete Question Answering"); the words and templates are this project's.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from fairseq_memattn.data_prep.generated.generated_examples import (
    SPLITS,
    add_size_arguments,
    distinct,
    pieces,
    split_sizes,
)
from fairseq_memattn.data_prep.generated.stories import story_examples
from fairseq_memattn.data_prep.pipeline import arguments
from fairseq_memattn.data_prep.pipeline import questions as qa_pipeline
from fairseq_memattn.data_prep.pipeline.pretrained_subwords import Subwords
from fairseq_memattn.data_prep.pipeline.stages import Counts, locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline
from fairseq_memattn.data_prep.text.lines import LineFunction, read_lines
from fairseq_memattn.errors import MemAttnError, check_least
from fairseq_memattn.files import write_all_or_nothing
from fairseq_memattn.qa.answer_scores import SQUAD

VERSION = 1  # increase it when the same options give other stories
# No story occurs twice, and fewer than 40,000 stories have two sentences.
MOST_OF_TWO = 20_000
MOST_SENTENCES = 1000
MOST_APART = 30  # supporting facts that are further apart are rare, whatever the length
DESCRIPTION = """\
Generate stories about people who move between places and carry objects, each with a question. The
answer is a place, and follows from one, two or three sentences of the story.

  %(prog)s --output stories
  %(prog)s --output one-fact --facts 1
      the same dictionary, for a model that is trained on them first and then on stories/

1 fact    Where is PERSON?                       where they went last
2 facts   Where is the OBJECT?                   where its holder is, or where it was dropped
3 facts   Where was the OBJECT before the PLACE?

FOLDER/json/SPLIT.json   the examples in the format of SQuAD 1.1. The list `facts` of a question has
                         the numbers of the supporting sentences, from 0: they give the answer, and
                         the story without any one of them does not
FOLDER/text/             questions, contexts and answers, one a line
FOLDER/pieces/           likewise, word by word and in lower case; SPLIT.facts has the tokens
                         BEGIN:END of each supporting sentence in `question </s> context </s>`,
                         from 0 and without END
FOLDER/bin/              data for --task question_answering: question/, context/, answer/, records/

The kinds of questions are those of bAbI's tasks 1 to 3 (Weston et al., 2015); the words and
templates are this project's. The same options give the same bytes, and no story occurs twice.
"""


def json_path(pipeline: Pipeline, split: str) -> Path:
    return pipeline.path("json", split, "json")


def write_json(pipeline: Pipeline, sizes: dict[str, int], seed: int, **drawn: Any) -> None:
    """Write json/ for all splits together, because no story may occur in two of them.

    drawn: the arguments `kinds` and `apart` of `draw_example`, `sentences` of a story, and
        `least_sentences` of a training story
    """
    outputs = [json_path(pipeline, split) for split in sizes]

    def work() -> Counts:
        counts: Counter[str] = Counter(sizes)
        passages: set[str] = set()
        most, kinds, apart = drawn["sentences"], drawn["kinds"], drawn["apart"]
        with write_all_or_nothing(outputs) as files:
            for file, (split, size) in zip(files, sizes.items(), strict=True):
                least = drawn["least_sentences"] if split == "train" else most
                draw = partial(
                    story_examples.draw_example,
                    sentences=range(least, most + 1),
                    kinds=kinds,
                    apart=apart,
                    counts=counts,
                )
                examples = distinct(split, size, seed, draw, passages, counts)
                file.write('{"version": "1.1", "data": [{"title": "stories", "paragraphs": [')
                for number, example in enumerate(examples):
                    # A paragraph of SQuAD with one question, and its facts.
                    answer = {"text": example.answer, "answer_start": example.answer_start}
                    asked = {
                        "id": f"{split}-{number}",
                        "question": example.question,
                        "answers": [answer],
                        "facts": example.facts,
                    }
                    paragraph = {"context": example.passage, "qas": [asked]}
                    file.write(",\n" * (number > 0) + json.dumps(paragraph))
                    counts[f"with {len(example.facts)} facts"] += 1
                file.write("]}]}\n")
        return counts

    pipeline.stages.run("json", [], outputs, work, version=VERSION, sizes=sizes, seed=seed, **drawn)


def write_facts(pipeline: Pipeline, split: str) -> None:
    """pieces/SPLIT.facts: where the supporting sentences are in the source of the task."""
    source, target = json_path(pipeline, split), pipeline.path("pieces", split, "facts")
    inputs = [source, *(pipeline.path("pieces", split, part) for part in ("question", "context"))]

    def work() -> None:
        [article] = json.loads(source.read_text(encoding="utf-8"))["data"]
        facts = (paragraph["qas"][0]["facts"] for paragraph in article["paragraphs"])
        with write_all_or_nothing([target]) as [file]:
            for question, story, numbers in zip(*map(read_lines, inputs[1:]), facts, strict=True):
                spans = sentence_spans(story.split(), len(question.split()) + 1)
                file.write(" ".join("{}:{}".format(*spans[number]) for number in numbers) + "\n")

    pipeline.stages.run(f"pieces-{split}-facts", inputs, [target], work)


def sentence_spans(story: Sequence[str], first: int) -> list[tuple[int, int]]:
    """The tokens [begin, end) of each sentence. first: the number of the story's first token."""
    ends = [number + 1 for number, token in enumerate(story) if token == "."]
    return [(first + begin, first + end) for begin, end in pairwise([0, *ends])]


def word_segmenter() -> LineFunction:
    return pieces


def check_options(args: argparse.Namespace) -> None:
    check_least(args, "sentences", max(args.facts) + 1, MOST_SENTENCES)
    examples = sum(split_sizes(args).values())
    if args.sentences == 2 and examples > MOST_OF_TWO:
        raise MemAttnError(
            f"--train, --valid and --test must be at most {MOST_OF_TWO} together with --sentences "
            f"2, but are {examples}"
        )
    if args.least_sentences is not None:
        check_least(args, "least_sentences", 1, args.sentences)
    check_least(args, "apart", 0, min(args.sentences // 2, MOST_APART))
    repeated = [kind for kind, times in Counter(args.facts).items() if times > 1]
    if repeated:
        raise MemAttnError(f"--facts names {repeated[0]} twice")


@locks_output
def run(args: argparse.Namespace) -> None:
    check_options(args)
    pipeline = Pipeline(args.output, qa_pipeline.PARTS, workers=args.workers, force=args.force)
    drawn = {"sentences": args.sentences, "kinds": sorted(args.facts), "apart": args.apart}
    drawn["least_sentences"] = args.least_sentences or args.sentences
    write_json(pipeline, split_sizes(args), args.seed, **drawn)
    corpus = qa_pipeline.Corpus(SQUAD, {}, {}, attrgetter("context"))
    for split in SPLITS:
        ask = partial(qa_pipeline.with_context, corpus)
        qa_pipeline.write_questions(pipeline, corpus, split, json_path(pipeline, split), ask)
    # All words of all stories, so that corpora of other options have the same dictionary.
    texts = map(pieces, story_examples.all_texts())
    words = list(dict.fromkeys(word for text in texts for word in text.split()))
    dictionary = pipeline.write_dictionary("dictionary", "words.txt", words, words=words)
    subwords = Subwords((), dictionary, word_segmenter)
    qa_pipeline.segment_and_binarise(pipeline, SPLITS, SPLITS, subwords)
    for split in SPLITS:
        write_facts(pipeline, split)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_size_arguments(parser, 20_000, 1000)
    parser.add_argument(
        "--facts",
        type=int,
        nargs="+",
        choices=range(1, story_examples.MOST_FACTS + 1),
        default=list(range(1, story_examples.MOST_FACTS + 1)),
        metavar="N",
        help="numbers of facts that a question may need, of 1, 2 and 3 (default: all)",
    )
    of_sentences = "sentences of a story, of 5 or 6 tokens each, more than --facts and at most 1000"
    arguments.add_numbers(parser, {"--sentences": (int, 18, of_sentences)})
    of_least = (
        "each training story has a random number of sentences from this to --sentences, because "
        "models learn from short stories first; valid and test have --sentences (default: all "
        "have --sentences)"
    )
    parser.add_argument("--least-sentences", **arguments.number(of_least, type=int))
    of_apart = (
        "least number of sentences from the first supporting fact to the last, where there are "
        "several, at most half of --sentences and at most 30 (default: %(default)s, which one "
        "chunk of 32 tokens cannot hold)"
    )
    parser.add_argument("--apart", **arguments.number(of_apart, 6, type=int))
    arguments.add_options(parser, *arguments.COMMON)
