"""Long contexts: prompts that answer their questions, and their scores in lm-evaluation-harness."""

import re
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from fairseq_memattn.data_prep.generated import long_context
from fairseq_memattn.data_prep.generated.long_context import examples

FOLDER = Path(long_context.__file__).parent


def words(text):
    return len(text.split())


def drawn(kind, seed, length=200):
    rng = Random(f"{kind} {seed}")
    facts = examples.KINDS[kind](rng)
    return facts, examples.prompt(rng, facts, examples.told(rng), length, words)


def numbers(text, question):
    told = dict(re.findall(r"number of the ([\w ]+) is (\d+)\.", text))
    things = question.partition(" of the ")[2].rstrip("?")
    return [told[thing] for thing in re.split(", the | and the ", things)]


def variables(text, question):
    values = {}
    for name, value in re.findall(r"VAR (\w+) = (?:VAR )?(\w+)\.", text):
        values[name] = values.get(value, value)
    wanted = re.search(r"\d{5}", question).group()
    return [name for name, value in values.items() if value == wanted]


def counts(text, question):
    name, thing = re.fullmatch(r"How many times did (\w+) look for the (.+)\?", question).groups()
    return [str(text.count(f"{name} looked for the {thing}."))]


# What answers a prompt by its words alone.
READERS = {"needle": numbers, "recall": numbers, "variables": variables, "counts": counts}


@pytest.mark.parametrize("kind", examples.KINDS)
def test_prompts(kind):
    for seed in range(20):
        facts, prompt = drawn(kind, seed)
        assert (facts, prompt) == drawn(kind, seed) != drawn(kind, seed + 1)
        assert 180 < words(prompt) <= 200
        text, _, question = prompt.partition("\n\nQuestion: ")
        places = [text.index(sentence) for sentence in dict.fromkeys(facts.sentences)]
        assert kind == "two_facts" or places == sorted(places)
        if kind in READERS:
            assert READERS[kind](text, question.partition("\n")[0]) == list(facts.answers)
        assert examples.score(facts.pattern, facts.answers, f" {', '.join(facts.answers)}.") == 1


def test_scores_count_as_many_candidates_as_answers():
    answers = ["12", "34"]
    for text, expected in {"34 and 12.": 1, "12, 12": 0.5, "1, 2, 12, 34": 0, "": 0}.items():
        assert examples.score(examples.NUMBER, answers, text) == expected
    assert examples.score(examples.VARIABLE, ["ABC", "XYZ"], "ABC, VAR XYZ") == 1


def test_a_text_of_ones_own():
    sentences = examples.cut("One. Two\nis here! Three?  \n")
    assert sentences == ["One.", "Two is here!", "Three?"]
    assert sorted(islice(examples.read_on(Random(3), sentences), 9)) == sorted(3 * sentences)
    with pytest.raises(ValueError, match="it has none"):
        examples.cut(" \n")
    with pytest.raises(ValueError, match=r"of \d+ tokens, but has 20"):
        drawn("variables", 1, length=20)


@pytest.mark.full
@pytest.mark.skipif(not find_spec("lm_eval"), reason="needs the package lm_eval")
def test_in_lm_evaluation_harness(tmp_path):
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Reader(LM):
        """Answers by READERS, and `two_facts` with nothing."""

        def generate_until(self, requests):
            return [self.answer(request.args[0]) for request in requests]

        def answer(self, prompt):
            text, _, question = prompt.partition("\n\nQuestion: ")
            kind = next(k for k in ("VAR", "look for", "special", "") if k in question)
            read = {"VAR": variables, "look for": counts, "special": numbers}.get(kind)
            return " ".join(read(text, question.partition("\n")[0])) if read else ""

        def loglikelihood(self, requests):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    (tmp_path / "text").write_text("It is a text of one's own. " * 9, "utf-8")
    given = {"lengths": [120, 150], "examples_of_length": 3, "text": str(tmp_path / "text")}
    manager = TaskManager(
        include_path=str(FOLDER), include_defaults=False, metadata=given | {"tokenizer": Tokens()}
    )
    found = simple_evaluate(
        Reader(), tasks=["memattn_long_context"], task_manager=manager, bootstrap_iters=0
    )["results"]
    assert len(found) == 5
    for task, row in found.items():
        expected = float(task != "memattn_two_facts")
        assert [row[f"{name},none"] for name in ("acc", "acc_120", "acc_150")] == [expected] * 3


class Tokens:
    """A tokenizer of words."""

    def __call__(self, text, add_special_tokens=True):
        assert not add_special_tokens
        return type("Encoded", (), {"input_ids": text.split()})
