"""What a trained model says, by every command that asks it: always the same."""

import re
import shlex
import shutil

import pytest
from harness import (
    LANGUAGE_MODEL,
    PLUGGED,
    Trained,
    generate,
    hypotheses,
    lines_of,
    logged,
    preprocess,
    run,
    train,
)

from fairseq_memattn.models.abc_transformer import ABCTransformer
from fairseq_memattn.models.abc_transformer_lm import ABCTransformerLanguageModel

SEARCHES = {
    "greedy": "--beam 1",
    "beam": "--beam 5",
    "prefix": "--beam 3 --prefix-size 2",
}
ALIGNED = ["--print-alignment", "--max-len-b", 20]


@pytest.fixture(scope="module", params=SEARCHES.values(), ids=SEARCHES)
def search(request):
    return shlex.split(request.param)


@pytest.fixture(scope="module")
def generated(search, translator):
    """The test set translated in batches."""
    return generate(translator, *search, *ALIGNED, "--batch-size", 16)


@pytest.fixture(scope="module")
def beam_five(translator):
    return generate(translator, "--beam", 5, "--max-len-b", 20, "--batch-size", 16)


def assert_same(ours, theirs, alignments=True):
    assert ours.keys() == theirs.keys()
    for number, one in ours.items():
        other = theirs[number]
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.positional == pytest.approx(other.positional, abs=2e-4)
        assert not alignments or one.alignment == other.alignment


def test_every_sentence_is_translated_once(generated, corpus):
    assert list(generated) == list(range(len(lines_of(corpus / "test.en"))))
    assert len({hypothesis.text for hypothesis in generated.values()}) > 5


def test_one_sentence_at_a_time_gives_the_same(search, generated, translator):
    assert_same(generate(translator, *search, *ALIGNED, "--batch-size", 1), generated)


def test_scored_equals_generated(generated, translator, corpus, tmp_path):
    """The decoder reading a translation at once gives what it gave writing it step by step."""
    shutil.copy(corpus / "test.en", tmp_path)
    text = "".join(f"{hypothesis.text}\n" for hypothesis in generated.values())
    (tmp_path / "test.ru").write_text(text, encoding="utf-8")
    words = translator.data / "dict.en.txt"
    options = ["-s", "en", "-t", "ru", "--srcdict", words, "--joined-dictionary"]
    data = preprocess(tmp_path, *options, splits="test")
    scored = generate(
        Trained(data, translator.checkpoint, ""), "--score-reference", "--print-alignment"
    )
    assert_same(scored, generated)


def test_alignments_point_into_the_sentences(generated, corpus):
    sources = lines_of(corpus / "test.en")
    for number, hypothesis in generated.items():
        pairs = [tuple(map(int, pair.split("-"))) for pair in hypothesis.alignment.split()]
        assert [target for _, target in pairs] == list(range(len(hypothesis.text.split())))
        assert all(0 <= source < len(sources[number].split()) for source, _ in pairs)


def test_prefix_is_kept(translator, corpus):
    found = generate(translator, *shlex.split(SEARCHES["prefix"]), *ALIGNED)
    known = {line.split()[0] for line in lines_of(translator.data / "dict.ru.txt")}
    checked = 0
    for number, reference in enumerate(lines_of(corpus / "test.ru")):
        prefix = [word if word in known else "<unk>" for word in reference.split()[:2]]
        assert found[number].text.split()[: len(prefix)] == prefix
        checked += 1
    assert checked == len(found)


def test_soft_alignments_are_distributions(translator):
    found = generate(translator, "--beam", 2, "--max-len-b", 5, "--print-alignment", "soft")
    for hypothesis in found.values():
        for weights in hypothesis.alignment.split():
            assert sum(map(float, weights.split(","))) == pytest.approx(1, abs=1e-4)


def test_ensemble_of_twins_is_the_model(translator, beam_five):
    twins = Trained(translator.data, f"{translator.checkpoint}:{translator.checkpoint}", "")
    assert_same(generate(twins, "--beam", 5, "--max-len-b", 20), beam_five)


def test_interactive_gives_the_same(translator, corpus, beam_five):
    done = run(
        "fairseq-interactive",
        translator.data,
        *PLUGGED,
        *("--path", translator.checkpoint, "--beam", 5, "--max-len-b", 20),
        *("--buffer-size", 10, "--batch-size", 4),
        stdin=(corpus / "test.en").read_text(encoding="utf-8"),
    )
    assert_same(hypotheses(done.stdout), beam_five)


def test_from_pretrained_gives_the_same(translator, corpus, beam_five):
    hub = (
        ABCTransformer.from_pretrained(
            str(translator.checkpoint.parent),
            translator.checkpoint.name,
            str(translator.data),
            user_dir=PLUGGED[1],
        )
        .cpu()
        .eval()
    )
    said = hub.translate(lines_of(corpus / "test.en"), beam=5, max_len_b=20)
    assert said == [hypothesis.text for hypothesis in beam_five.values()]


def test_score_agrees_with_generate(translator, tmp_path):
    done = run(
        "fairseq-generate",
        translator.data,
        *PLUGGED,
        *("--path", translator.checkpoint, "--required-batch-size-multiple", 1, "--beam", 2),
    )
    for kind in "HT":
        rows = re.findall(rf"^{kind}-(\d+)\t(?:\S+\t(?=.*))?(.*)$", done.stdout, re.MULTILINE)
        rows = sorted((int(number), text.split("\t")[-1]) for number, text in rows)
        text = "".join(f"{text}\n" for _, text in rows)
        (tmp_path / kind).write_text(text, encoding="utf-8")
    scored = run("fairseq-score", "--sys", tmp_path / "H", "--ref", tmp_path / "T").stdout
    bleu = re.compile(r"BLEU4 = [\d.]+, [\d./]+ \(BP=[\d.]+")
    assert bleu.findall(scored) == bleu.findall(done.stdout) != []


# --------------------------------------------------------------------------- language models


def perplexity(model, *flags):
    done = run(
        "fairseq-eval-lm",
        model.data,
        *PLUGGED,
        *("--path", model.checkpoint, "--gen-subset", "valid", "--sample-break-mode", "none"),
        *("--tokens-per-sample", 32, "--max-tokens", 1000, "--output-word-stats"),
        *flags,
    )
    (found,) = re.findall(r"Perplexity: ([\d.]+)", done.stderr + done.stdout)
    (tokens,) = re.findall(r"Evaluated ([\d,]+) tokens", done.stderr + done.stdout)
    return float(found), int(tokens.replace(",", ""))


def test_eval_lm(language_model, corpus):
    valid = float(logged(language_model.log, "valid")[-1]["valid_ppl"])
    tokens = sum(len(line.split()) + 1 for line in lines_of(corpus / "valid.en"))
    plain, evaluated = perplexity(language_model, "--context-window", 0)
    assert plain == pytest.approx(valid, rel=1e-3)
    assert evaluated == tokens
    with_context, evaluated = perplexity(language_model, "--context-window", 16)
    assert evaluated >= tokens
    assert with_context != plain
    assert with_context == pytest.approx(plain, rel=0.3)


def test_language_model_scores_and_continues(language_model, corpus):
    hub = (
        ABCTransformerLanguageModel.from_pretrained(
            str(language_model.checkpoint.parent),
            language_model.checkpoint.name,
            str(language_model.data),
            user_dir=PLUGGED[1],
        )
        .cpu()
        .eval()
    )
    sentences = lines_of(corpus / "test.en")[:6]
    batch = hub.score(sentences)
    for sentence, scored in zip(sentences, batch, strict=True):
        alone = hub.score(sentence)["positional_scores"]
        assert scored["positional_scores"].tolist() == pytest.approx(alone.tolist(), abs=1e-4)

    prefix = " ".join(sentences[0].split()[:3])
    said = hub.sample(prefix, beam=3, max_len_b=8, sampling=False)
    assert said.startswith(prefix) and len(said) > len(prefix)


def test_adaptive_language_model_is_evaluated_as_trained(monolingual, tmp_path):
    flags = shlex.split(
        "--adaptive-input --adaptive-input-cutoff 200,400 --adaptive-softmax-cutoff 200,400 "
        "--tie-adaptive-weights --tie-adaptive-proj --criterion adaptive_loss --max-update 20"
    )
    trained = train(monolingual, tmp_path, *LANGUAGE_MODEL, *flags)
    valid = float(logged(trained.log, "valid")[-1]["valid_ppl"])
    assert perplexity(trained)[0] == pytest.approx(valid, rel=1e-3)
