"""What a trained model says, by every command that asks it: always the same."""

import re
import shlex

import pytest
from harness import (
    LANGUAGE_MODEL,
    PLUGGED,
    Trained,
    generate,
    hypotheses,
    lines_of,
    logged,
    run,
    train,
)

from fairseq_memattn.models.abc_transformer_lm import ABCTransformerLanguageModel

SEARCHES = {
    "greedy": shlex.split("--beam 1"),
    "beam": shlex.split("--beam 5"),
    "prefix": shlex.split("--beam 3 --prefix-size 2"),
}
ALIGNED = ["--print-alignment", "--max-len-b", 20]


@pytest.fixture(scope="module")
def printed(translator):
    """What fairseq-generate prints, by the way of searching."""
    return {
        name: generate(translator, *flags, *ALIGNED, "--batch-size", 16)
        for name, flags in SEARCHES.items()
    }


@pytest.fixture(scope="module")
def generated(printed):
    """The test set translated in batches, by the way of searching."""
    return {name: hypotheses(text) for name, text in printed.items()}


def assert_same(ours, theirs, alignments=True):
    assert ours.keys() == theirs.keys()
    for number, one in ours.items():
        other = theirs[number]
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.positional == pytest.approx(other.positional, abs=2e-4)
        assert not alignments or one.alignment == other.alignment


def test_prefix_is_kept(generated, translator, corpus):
    known = {line.split()[0] for line in lines_of(translator.data / "dict.ru.txt")}
    for number, reference in enumerate(lines_of(corpus / "test.ru")):
        prefix = [word if word in known else "<unk>" for word in reference.split()[:2]]
        assert generated["prefix"][number].text.split()[: len(prefix)] == prefix


def test_ensemble_of_twins_is_the_model(translator, generated):
    twins = Trained(translator.data, f"{translator.checkpoint}:{translator.checkpoint}", "")
    found = generate(twins, *SEARCHES["beam"], *ALIGNED)
    assert_same(hypotheses(found), generated["beam"])


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


@pytest.mark.full
def test_adaptive_language_model_is_evaluated_as_trained(monolingual, tmp_path):
    flags = shlex.split(
        "--adaptive-input --adaptive-input-cutoff 200,400 --adaptive-softmax-cutoff 200,400 "
        "--tie-adaptive-weights --tie-adaptive-proj --criterion adaptive_loss "
        "--ddp-backend legacy_ddp --max-update 20"
    )
    trained = train(monolingual, tmp_path, *LANGUAGE_MODEL, *flags)
    valid = float(logged(trained.log, "valid")[-1]["valid_ppl"])
    # adaptive_loss takes the second word of each tail for padding and leaves it out; eval-lm
    # counts it.
    assert perplexity(trained)[0] == pytest.approx(valid, rel=0.05)
