"""Translations and continuations by fairseq's commands: the same by every route."""

import re
import warnings
from collections import defaultdict

import pytest
from contract_cases import KINDS, TRANSLATING, each_case
from contract_models import ids, sentences, write_pairs, write_text
from fairseq.models import ARCH_MODEL_REGISTRY
from harness import PLUGGED, PLUGIN, Trained, run

from fairseq_memattn.host.messages.handler import quiet_known_warnings

GENERATING = (*TRANSLATING, "language_model")
BEAM = 3
COMMON = ["--required-batch-size-multiple", 1, "--beam", BEAM]
# Tokens of a translation, and of a line with its continuation.
# Those of a language model are more than most prompts have, in a search that prefers few.
SEARCH = {
    "translation": {"max_len_b": 7},
    "documents": {"max_len_b": 7},
    "language_model": {"max_len_b": 12, "min_len": 9, "lenpen": 0},
}
DOCUMENTS = "--task document_translation --source-context 2 --target-context 2".split()
TASKS = {
    "translation": [],
    "documents": DOCUMENTS,
    "language_model": KINDS["language_model"].split(),
}
TEST = {"x": sentences(len(ids()), 21), "y": sentences(len(ids()), 22)}


def shown(output, best=1):
    """(text, scores of its tokens) of the hypotheses of each sentence, best first."""
    found = defaultdict(list)
    for number, text, scores in re.findall(
        r"^H-(\d+)\t\S+\t(.*)\n(?:D-.*\n)P-\d+\t(.*)$", output, re.MULTILINE
    ):
        found[int(number)].append((text, [float(score) for score in scores.split()]))
    assert {len(rows) for rows in found.values()} == {best}
    return dict(sorted(found.items()))


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for number, rows in ours.items():
        for (text, scores), (other, other_scores) in zip(rows, theirs[number], strict=True):
            assert text == other, number
            assert scores == pytest.approx(other_scores, abs=3e-4), number


def search(case):
    flags = {name.replace("_", "-"): value for name, value in SEARCH[case.kind].items()}
    return [f"--{name}={value}" for name, value in flags.items()]


def generate(case, model, *flags, best=1, **options):
    path = ["--path", model.checkpoint, "--gen-subset", "test", *TASKS[case.kind]]
    given = [*COMMON, *search(case), *flags]
    done = run("fairseq-generate", model.data, *PLUGGED, *path, *given, **options)
    return shown(done.stdout, best)


@pytest.fixture(scope="module")
def generated(models):
    """What fairseq-generate finds for the test set, by case."""
    known = {}

    def found(case):
        if case not in known:
            known[case] = generate(case, models(case), "--batch-size", 6)
            assert list(known[case]) == list(range(len(TEST["x"])))
        return known[case]

    return found


@each_case(*GENERATING, every=62, first=31)
def test_one_at_a_time(case, models, generated):
    alone = ["--batch-size", 1]
    if case.kind == "documents":
        alone += ["--parallel-documents", 1]
    assert_same(generate(case, models(case), *alone), generated(case))


@each_case(*GENERATING, every=62, first=37)
def test_few_tokens(case, models, generated):
    assert_same(generate(case, models(case), "--max-tokens", 40), generated(case))


@pytest.mark.full
@each_case(*GENERATING, every=31, first=17)
def test_half_precision(case, models, generated):
    """The best hypothesis may be another one, which changes the context of later sentences."""
    half, full = generate(case, models(case), "--batch-size", 6, "--fp16"), generated(case)
    for number in [0, 1, 5, 8]:  # the first of each document
        (found, expected) = (sum(x[number][0][1]) / len(x[number][0][1]) for x in (half, full))
        assert found == pytest.approx(expected, abs=0.1), number


@pytest.mark.full
@each_case(*TRANSLATING, every=48, first=40)
def test_padding_on_the_other_side(case, models, generated):
    flags = ["--batch-size", 6, "--left-pad-source"]  # which is a switch
    assert_same(generate(case, models(case), *flags), generated(case))


@pytest.mark.full
@each_case(*GENERATING, every=70, first=18)
def test_workers(case, models, generated):
    """In a process of its own: the workers are forked."""
    found = generate(case, models(case), "--num-workers", 2, "--batch-size", 6, fresh=True)
    assert_same(found, generated(case))


@pytest.mark.full
@each_case(*GENERATING, every=62, first=44)
def test_shards(case, models, generated):
    found = {}
    for number in range(3):
        flags = ["--num-shards", 3, "--shard-id", number, "--batch-size", 3]
        shard = generate(case, models(case), *flags)
        assert not found.keys() & shard.keys()
        found |= shard
    assert_same(dict(sorted(found.items())), generated(case))


@each_case(*GENERATING, every=62, first=51)
def test_scored_is_generated(case, models, generated, tmp_path):
    """With the other hypotheses of a beam too, each scored by itself.

    The context of a document is its best hypotheses.
    """
    model = models(case)
    best = 1 if case.kind == "documents" else BEAM
    rows = generated(case)
    if best > 1:
        rows = generate(case, model, "--batch-size", 6, "--nbest", best, best=best)
    hypotheses = [row for number in rows for row in rows[number]]
    texts = [text for text, _ in hypotheses]
    if case.kind == "language_model":
        write_text(tmp_path, "test", texts)
    else:
        sources = [source for source in TEST["x"] for _ in range(best)]
        documents = ids() if case.kind == "documents" else map(str, range(len(texts)))
        write_pairs(tmp_path, "test", sources, texts, list(documents))
    for text, scores in hypotheses:
        assert len(scores) == len(text.split()) + 1
    to_score = Trained(tmp_path, model.checkpoint, "")
    scored = generate(case, to_score, "--score-reference", "--batch-size", 7)
    assert_same(scored, {number: [row] for number, row in enumerate(hypotheses)})


def typed(case):
    """The test set as typed, in another order, and the line of each sentence.

    An empty line ends a document.
    """
    if case.kind != "documents":
        order = list(reversed(range(len(TEST["x"]))))
        return [TEST["x"][number] for number in order], [order.index(n) for n in sorted(order)]
    lines, places, documents = [], {}, ids()
    for document in reversed(sorted(set(documents))):
        for number, source in enumerate(TEST["x"]):
            if documents[number] == document:
                places[number] = len(lines)
                lines.append(source)
        lines.append("")
    return lines, [places[number] for number in range(len(TEST["x"]))]


@each_case(*GENERATING, every=62, first=11)
def test_interactive_is_generated(case, models, generated):
    """In another order, with buffers that cut documents in parts."""
    model, (lines, places) = models(case), typed(case)
    flags = ["--path", model.checkpoint, *TASKS[case.kind], "--beam", BEAM, *search(case)]
    done = run(
        "fairseq-interactive", model.data, *PLUGGED, *flags, "--buffer-size", 5, "--batch-size", 3,
        stdin="".join(f"{line}\n" for line in lines),
    )  # fmt: skip
    found = shown(done.stdout)
    assert_same({number: found[place] for number, place in enumerate(places)}, generated(case))


def from_pretrained(case, model, **options):
    with warnings.catch_warnings():
        quiet_known_warnings()
        hub = ARCH_MODEL_REGISTRY[case.arch].from_pretrained(
            str(model.checkpoint.parent),
            model.checkpoint.name,
            str(model.data),
            user_dir=str(PLUGIN),
            **options,
        )
    return hub.cpu().eval()


@each_case(*GENERATING, every=50, first=2)
def test_from_pretrained_is_generated(case, models, generated):
    model, (lines, places) = models(case), typed(case)
    options = {"beam": BEAM, **SEARCH[case.kind]}
    said = from_pretrained(case, model).translate(lines, **options)
    texts = [rows[0][0] for rows in generated(case).values()]
    assert [said[place] for place in places] == texts
