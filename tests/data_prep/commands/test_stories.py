"""Generated stories: every answer and every supporting fact is read off the text by other means."""

import json
import re
from collections import Counter
from collections.abc import Collection
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from official_archives import lines
from preparing import prepare as run_preparation

from fairseq_memattn.data.chunks import Chunking
from fairseq_memattn.data_prep.commands import make_parser, squad, stories
from fairseq_memattn.data_prep.generated.stories.story_examples import draw_example
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.question_sets import read_records, read_squad

SENTENCE = re.compile(
    r"(?P<person>[A-Z][a-z]+) "
    r"(?:(?:walked|hurried|cycled) to the (?P<place>[a-z]+)"
    r"|(?:took|collected) the (?P<taken>[a-z]+)"
    r"|dropped the (?P<dropped>[a-z]+)|left the (?P<left>[a-z]+) there)\."
)
QUESTIONS = {
    r"Where is ([A-Z][a-z]+)\?": 1,
    r"Where is the ([a-z]+)\?": 2,
    r"Where was the ([a-z]+) before the ([a-z]+)\?": 3,
}


def clauses(story: str) -> list[dict[str, str]]:
    """The words of each sentence."""
    found = []
    for sentence in re.findall(r"[^.]+\.", story):
        match = SENTENCE.fullmatch(sentence.strip())
        assert match, sentence
        found.append({name: word for name, word in match.groupdict().items() if word})
    return found


def whereabouts(told: list[dict[str, str]], person: str) -> str | None:
    """Where the last sentence that moves a person moves them."""
    places = [
        clause["place"] for clause in told if clause["person"] == person and "place" in clause
    ]
    return places[-1] if places else None


def trace(told: list[dict[str, str]], thing: str) -> list[str]:
    """Where an object is after each sentence, as far as it is known."""
    places, holder = [], None
    for end, clause in enumerate(told, start=1):
        if thing in (clause.get("taken"), clause.get("dropped"), clause.get("left")):
            carrier, holder = clause["person"], clause["person"] if "taken" in clause else None
        elif holder and clause["person"] == holder:
            carrier = holder
        else:
            continue
        place = whereabouts(told[:end], carrier)
        places += [place] if place else []
    return places


def answered(story: str, question: str) -> str | None:
    """The answer, from the text alone."""
    [(kind, words)] = [
        (kind, match.groups())
        for pattern, kind in QUESTIONS.items()
        if (match := re.fullmatch(pattern, question))
    ]
    told = clauses(story)
    if kind == 1:
        return whereabouts(told, words[0])
    visits = [place for place, _ in groupby(trace(told, words[0]))]
    if kind == 2:
        return visits[-1] if visits else None
    if visits.count(words[1]) != 1 or visits[0] == words[1]:
        return None
    return visits[visits.index(words[1]) - 1]


def part(story: str, numbers: Collection[int]) -> str:
    """The sentences of a story with these numbers."""
    sentences = re.findall(r"[^.]+\.", story)
    return "".join(sentences[number] for number in sorted(numbers))


def check(story: str, question: str, answer: str, facts: Collection[int]) -> None:
    """The answer is right, and the facts are necessary and sufficient."""
    everything = set(range(len(clauses(story))))
    assert set(facts) <= everything and len(set(facts)) == len(facts)
    assert answered(story, question) == answer
    assert answered(part(story, facts), question) == answer, (story, question, facts)
    for fact in facts:
        assert answered(part(story, everything - {fact}), question) != answer, (story, fact)


def prepare(folder: Path, *options: object, train: int = 60) -> int:
    sizes = ["--train", train, "--valid", 20, "--test", 10]
    argv = ["--output", folder, *sizes, *options]
    return run_preparation(stories, [str(argument) for argument in argv])


def paragraphs(folder: Path, split: str) -> list[tuple[str, dict]]:
    """The story and the question of each example."""
    content = json.loads((folder / f"json/{split}.json").read_text(encoding="utf-8"))
    [article] = content["data"]
    return [(one["context"], *one["qas"]) for one in article["paragraphs"]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stories") / "data"
    assert prepare(folder, train=600) == 0
    return folder


def test_the_oracle() -> None:
    story = (
        "Ines walked to the attic. Ines took the kettle. Ines hurried to the museum. "
        "Omar cycled to the bakery. Ines left the kettle there. Ines walked to the stable."
    )
    for question, answer in (
        ("Where is Ines?", "stable"),
        ("Where is Vera?", None),
        ("Where is the kettle?", "museum"),
        ("Where is the violin?", None),
        ("Where was the kettle before the museum?", "attic"),
        ("Where was the kettle before the attic?", None),
        ("Where was the kettle before the stable?", None),
    ):
        assert answered(story, question) == answer, question
    with pytest.raises(AssertionError):
        check(story, "Where is the kettle?", "museum", [2, 3])
    with pytest.raises(AssertionError):
        check(story, "Where is the kettle?", "museum", [1, 2, 4])
    check(story, "Where is the kettle?", "museum", [2, 4])


def test_answers_and_facts(corpus: Path) -> None:
    kinds, answers, stories_told = Counter(), Counter(), []
    for split in ("train", "valid", "test"):
        for number, (story, asked) in enumerate(paragraphs(corpus, split)):
            [answer], facts = asked["answers"], asked["facts"]
            check(story, asked["question"], answer["text"], facts)
            start = answer["answer_start"]
            assert story[start:].startswith(answer["text"] + ".")
            assert story[:start].count(".") in facts
            assert asked["id"] == f"{split}-{number}" and len(clauses(story)) == 18
            assert len(facts) == 1 or facts[-1] - facts[0] >= 6
            kinds[len(facts)] += 1
            answers[answer["text"]] += 1
            stories_told.append(story)
    assert len(set(stories_told)) == len(stories_told) == 630
    assert set(kinds) == {1, 2, 3} and min(kinds.values()) > 150
    assert len(answers) == 8 and max(answers.values()) < 130


@pytest.mark.parametrize(
    ("sentences", "kinds", "apart"), [(2, (1,), 0), (4, (3,), 2), (18, (2,), 9), (60, (2, 3), 20)]
)
def test_other_lengths_and_kinds(sentences: int, kinds: tuple[int, ...], apart: int) -> None:
    found = set()
    for seed in range(40 if sentences < 100 else 12):
        example = draw_example(
            Random(seed), range(sentences, sentences + 1), kinds, apart, Counter()
        )
        check(example.passage, example.question, example.answer, example.facts)
        assert len(clauses(example.passage)) == sentences
        assert len(example.facts) == 1 or example.facts[-1] - example.facts[0] >= apart
        found.add(len(example.facts))
    assert found == set(kinds)


def test_training_stories_of_several_lengths(tmp_path: Path) -> None:
    """Valid and test keep their length; a short story has its facts as far apart as it can."""
    folder = tmp_path / "data"
    options = ["--sentences", 8, "--least-sentences", 1, "--apart", 4]
    assert prepare(folder, *options, train=300) == 0
    lengths, kinds = Counter(), Counter()
    for story, asked in paragraphs(folder, "train"):
        [answer], facts, number = asked["answers"], asked["facts"], len(clauses(story))
        check(story, asked["question"], answer["text"], facts)
        assert len(facts) == 1 or facts[-1] - facts[0] >= min(4, number // 2)
        lengths[number] += 1
        kinds[len(facts)] += 1
    assert set(lengths) == set(range(1, 9)) and min(lengths.values()) > 5
    assert min(kinds.values()) > 60
    for split in ("valid", "test"):
        assert {len(clauses(story)) for story, _ in paragraphs(folder, split)} == {8}


def test_pieces_and_binary_data(corpus: Path) -> None:
    """A source is the question and the story word by word, with the facts where they are said."""
    dictionary = Dictionary.load(str(corpus / "bin/question/dict.txt"))
    for part_name in ("context", "answer"):
        same = (corpus / "bin/question/dict.txt").read_bytes()
        assert (corpus / f"bin/{part_name}/dict.txt").read_bytes() == same
    for split in ("train", "valid", "test"):
        questions, contexts, answers = (
            data_utils.load_indexed_dataset(str(corpus / f"bin/{part_name}/{split}"), dictionary)
            for part_name in ("question", "context", "answer")
        )
        records = read_records(corpus / f"bin/records/{split}.jsonl")
        places = lines(corpus / f"pieces/{split}.facts")
        told = paragraphs(corpus, split)
        assert len(questions) == len(contexts) == len(answers) == len(records) == len(told)
        for row in zip(questions, contexts, answers, records, places, told, strict=True):
            question, context, answer, record, spans, (story, asked) = row
            source = [dictionary[index] for index in [*question, *context]]
            assert "<unk>" not in source and 3 * 32 < len(source) <= 4 * 32
            assert dictionary.string(question) == asked["question"].lower().replace("?", " ?")
            assert dictionary.string(answer) == record.answers[0] == asked["answers"][0]["text"]
            said = [source[slice(*map(int, span.split(":")))] for span in spans.split()]
            chunks = Chunking(4, 32).split(torch.cat([question, context]))
            begins = [int(span.partition(":")[0]) for span in spans.split()]
            assert [dictionary[chunks[n // 32][n % 32]] for n in begins] == [one[0] for one in said]
            expected = [part(story, [number]).strip() for number in asked["facts"]]
            assert [" ".join(one).replace(" .", ".") for one in said] == [
                sentence.lower() for sentence in expected
            ]


def test_the_files_are_squad_s(corpus: Path, tmp_path: Path) -> None:
    found = list(read_squad(corpus / "json/test.json"))
    assert [one.context for one in found] == [story for story, _ in paragraphs(corpus, "test")]
    files = [f"{split}={corpus}/json/{split}.json" for split in ("train", "valid")]
    argv = ["--output", str(tmp_path / "squad"), "--vocab-size", "70", "--files", *files]
    assert run_preparation(squad, argv) == 0
    assert lines(tmp_path / "squad/text/valid.answer") == lines(corpus / "text/valid.answer")


WRONG_OPTIONS = [
    ("--sentences 3", "--sentences must be at least 4, but is 3"),
    ("--sentences 2 --facts 1 --apart 1 --train 19971", "must be at most 20000 together with"),
    ("--sentences 6", "--apart must be at most 3, but is 6"),
    ("--facts 2 1 2", "--facts names 2 twice"),
]


def test_options_that_cannot_be() -> None:
    for options, message in WRONG_OPTIONS:
        with pytest.raises(MemAttnError, match=message):
            stories.check_options(
                make_parser("stories").parse_args(["--output", "o", *options.split()])
            )
