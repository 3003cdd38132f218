"""The generated corpus: its Russian, its files, and that its contrastive sets are balanced."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from preparing import prepare

from fairseq_memattn.data_prep.commands import discourse
from fairseq_memattn.data_prep.generated.discourse import grammar, lexicon
from fairseq_memattn.data_prep.generated.discourse.discourse_corpus import (
    CANDIDATES,
    Group,
    gaps,
    group_count,
)
from fairseq_memattn.data_prep.generated.discourse.phenomena import PHENOMENA

SMALL = ["--train-docs", "60", "--valid-docs", "7", "--test-docs", "8", "--contrast-groups", "36"]


def run(out: Path, *options: str) -> int:
    """The exit status of the command line."""
    return prepare(discourse, ["--output", str(out), *options])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus."""
    out = tmp_path_factory.mktemp("discourse") / "corpus"
    assert run(out, *SMALL) == 0
    return out


def read(path: Path) -> list[str]:
    """The lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


def documents(corpus: Path, split: str, language: str) -> list[list[str]]:
    """The sentences of each document of a split."""
    found: dict[str, list[str]] = {}
    docids = read(corpus / f"{split}.docid")
    for docid, line in zip(docids, read(corpus / f"{split}.{language}"), strict=True):
        found.setdefault(docid, []).append(line)
    return list(found.values())


def words_of(text: str) -> set[str]:
    """The words of a text, in lower case and without punctuation."""
    return set(re.findall(r"[\w-]+", text.lower()))


def groups(corpus: Path, phenomenon: str) -> list[Group]:
    """The contrastive groups of a phenomenon."""
    path = corpus / "contrast" / f"{phenomenon}.json"
    found: list[Group] = json.loads(path.read_text(encoding="utf-8"))
    return found


def last(text: str) -> str:
    """The current sentence."""
    return text.split(" _eos ")[-1]


@pytest.mark.parametrize("phenomenon", ["ellipsis", "pronoun"])
def test_nobody_acts_between_the_cue_and_its_use(corpus: Path, phenomenon: str) -> None:
    people = {word.en[""] for word in lexicon.PEOPLE_WORDS}
    for group in groups(corpus, phenomenon):
        for sentence in group["src"].split(" _eos ")[4 - group["ctx_dist"] : -1]:
            assert not {name.lower() for name in people} & words_of(sentence), group


def test_files_are_aligned_and_counted(corpus: Path) -> None:
    counts = json.loads((corpus / "corpus.json").read_text(encoding="utf-8"))["counts"]
    for split, wanted in (("train", 60), ("valid", 7), ("test", 8)):
        english, russian = documents(corpus, split, "en"), documents(corpus, split, "ru")
        assert len(english) == wanted
        assert [len(one) for one in english] == [len(one) for one in russian]
        assert all(6 <= len(one) <= 12 for one in english)
        assert counts[split] == {"documents": wanted, "sentences": sum(map(len, english))}
        assert all(line == " ".join(line.split()) and line for one in english for line in one)


def test_the_test_set_does_not_depend_on_how_much_is_trained_on(corpus, tmp_path):
    options = ["--train-docs", "3", *SMALL[2:]]
    assert run(tmp_path / "less", *options) == 0
    assert (tmp_path / "less/test.en").read_bytes() == (corpus / "test.en").read_bytes()


def test_no_document_is_shared(corpus: Path) -> None:
    texts = [
        "\n".join(one)
        for split in ("train", "valid", "test")
        for one in documents(corpus, split, "en")
    ]
    assert len(set(texts)) == len(texts) == 75
    for phenomenon in PHENOMENA:
        for group in groups(corpus, phenomenon):
            context = "\n".join(group["src"].split(" _eos "))
            assert not any(context in text for text in texts)


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_contrastive_sets_have_voitas_format_and_are_balanced(corpus, phenomenon):
    found = groups(corpus, phenomenon)
    assert len(found) == group_count(36) == 36
    for group in found:
        assert set(group) == {"src", "dst", "true_ind", "ctx_dist"}
        assert group["src"].count(" _eos ") == 3
        assert len(group["dst"]) == len(set(group["dst"])) == CANDIDATES
        assert len({candidate.rsplit(" _eos ", 1)[0] for candidate in group["dst"]}) == 1
    assert Counter(group["ctx_dist"] for group in found) == dict.fromkeys((1, 2, 3), 12)
    assert Counter(group["true_ind"] for group in found) == {0: 18, 1: 18}


def test_other_distances(tmp_path: Path) -> None:
    """As many groups for each, and documents in which the cue is so far away."""
    sizes = ["--train-docs", "20", "--valid-docs", "1", "--test-docs", "1", "--seed", "1"]
    lengths = ["--min-sentences", "9", "--max-sentences", "20", "--contrast-groups", "6"]
    assert run(tmp_path / "far", *sizes, *lengths, "--distances", "1", "4", "8") == 0
    for phenomenon in PHENOMENA:
        found = groups(tmp_path / "far", phenomenon)
        assert Counter(group["ctx_dist"] for group in found) == {1: 2, 4: 2, 8: 2}
        assert {group["src"].count(" _eos ") for group in found} == {8}
    assert gaps([1, 4, 8]) == [0] * 8 + [3] * 2 + [7]
    assert run(tmp_path / "far", *sizes, *lengths, "--distances", "1", "4", "8") == 0
    assert run(tmp_path / "far", *sizes, *lengths) == 1  # made with other options


@pytest.mark.parametrize("phenomenon", PHENOMENA)
@pytest.mark.parametrize("scorer", ["long", "short", "alphabet", "random"])
def test_whoever_sees_no_context_is_at_chance(corpus: Path, phenomenon: str, scorer: str) -> None:
    scores: dict[str, Callable[[str, str], int | float | str]] = {
        "long": lambda source, target: len(target),
        "short": lambda source, target: -len(target),
        "alphabet": lambda source, target: target,
        "random": lambda source, target: random.Random(source + target).random(),
    }
    found = groups(corpus, phenomenon)
    right = 0
    for group in found:
        source, targets = last(group["src"]), [last(candidate) for candidate in group["dst"]]
        # Ties are broken by the text, so that the choice is a function of the current sentences.
        best = max(targets, key=lambda target: (scores[scorer](source, target), target))
        right += targets.index(best) == group["true_ind"]
    assert right * CANDIDATES == len(found)


def test_the_right_pronoun_agrees_with_the_noun_in_the_context(corpus: Path) -> None:
    pronouns = {
        "m": {"он", "его", "нём", "него"},
        "f": {"она", "её", "ней", "неё"},
        "n": {"оно", "его", "нём", "него"},
        "p": {"они", "их", "них"},
    }
    every = set().union(*pronouns.values())
    nouns = {word.en[""]: word for words in lexicon.NOUN_WORDS.values() for word in words}
    for group in groups(corpus, "pronoun"):
        cue = group["src"].split(" _eos ")[3 - group["ctx_dist"]]
        english = max((name for name in nouns if re.search(rf"(?<![\w']){name}\b", cue)), key=len)
        gender = grammar.GENDERS[nouns[english].choice]
        for index, candidate in enumerate(group["dst"]):
            used = words_of(last(candidate)) & every
            assert used, candidate
            assert (used <= pronouns[gender]) == (index == group["true_ind"]), group


def test_the_right_form_of_address_is_the_one_of_the_context(corpus: Path) -> None:
    familiar = {vocative.en[""].lower() for vocative in lexicon.VOCATIVE_WORDS[0]}
    for group in groups(corpus, "deixis"):
        cue = group["src"].split(" _eos ")[3 - group["ctx_dist"]].lower()
        formal = not any(re.search(rf"\b{name}\b", cue) for name in familiar)
        source = last(group["src"])
        you_forms = [words_of(last(candidate)) for candidate in group["dst"]]
        right = you_forms[group["true_ind"]] - you_forms[1 - group["true_ind"]]
        endings = tuple("те вы вас вам вами ваш ваша ваше вашу ваши вернёте будете".split())
        assert any(token.endswith(endings) for token in right) == formal, (source, group)


def test_the_right_rendering_is_the_one_of_the_context(corpus: Path) -> None:
    pairs = [*lexicon.NAME_WORDS, *(pair for two in lexicon.SYNONYM_WORDS.values() for pair in two)]

    def says(word: grammar.Word, text: str) -> bool:
        forms = {word.ru[case].lower() for case in ("", *grammar.CASES)}
        return bool(forms & words_of(text))

    for group in groups(corpus, "cohesion"):
        before, right = group["dst"][group["true_ind"]].rsplit(" _eos ", 1)
        wrong = last(group["dst"][1 - group["true_ind"]])
        (told,) = [
            (chosen, other)
            for pair in pairs
            for chosen, other in (pair, pair[::-1])
            if says(chosen, right) and says(other, wrong) and not says(other, right)
        ]
        chosen, other = told
        assert chosen.en[""].lower() in words_of(
            group["src"].split(" _eos ")[3 - group["ctx_dist"]]
        )
        assert says(chosen, before) and not says(other, before), group


@pytest.mark.parametrize("wrong", ["--distances 2 2", "--min-sentences 3", "--max-sentences 5"])
def test_impossible_options(wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "corpus", *wrong.split()) == 1
    assert f"{wrong.split()[0]} must" in capsys.readouterr().err
