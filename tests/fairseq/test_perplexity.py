"""Memories carried from block to block, and `memattn perplexity`."""

import json
import math
import re
import shlex
import shutil
from argparse import Namespace

import pytest
import torch
from corpora import numbered_words
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.modules import PositionalEmbedding
from harness import LANGUAGE_MODEL, PLUGGED, Trained, attempt, logged, run, train

from fairseq_memattn.attention.controls import CONTROLS, KERNEL_ATTENTION
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.perplexity import LossByPosition, stream_scores, target_scores
from fairseq_memattn.modules.abc_layers import position_vectors

LIMITED = ("linformer", "compressive")  # made for the model's maximum of positions
MODELS = {f"abc_{name}": name for name in CONTROLS} | {name: name for name in KERNEL_ATTENTION}
CARRIED = [
    prefix
    for prefix, name in MODELS.items()
    if name not in LIMITED and not (CONTROLS | KERNEL_ATTENTION)[name].causal_refusal
]


@pytest.fixture(scope="module")
def dictionary():
    return numbered_words(40)


def build(arch, dictionary, **options):
    """With random weights, and 32 positions in training."""
    torch.manual_seed(1)
    sizes = Namespace(decoder_layers=2, decoder_embed_dim=16, decoder_ffn_embed_dim=32)
    sizes.decoder_attention_heads, sizes.abc_causal_slots, sizes.max_target_positions = 2, 4, 32
    sizes.abc_global_positions = "0,50"
    vars(sizes).update(options)
    ARCH_CONFIG_REGISTRY[arch](sizes)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return ARCH_MODEL_REGISTRY[arch].build_model(sizes, task).eval()


def unbroken(model, stream, eos):
    """One pass over the whole stream."""
    inputs = torch.cat([torch.tensor([eos]), stream[:-1]]).unsqueeze(0)
    with torch.no_grad():
        log_probs = model.get_normalized_probs(model(inputs), log_probs=True)
    return log_probs[0].gather(1, stream.unsqueeze(1)).squeeze(1)


def streams_of(dictionary, *lengths):
    generator = torch.Generator().manual_seed(1)
    words = (dictionary.nspecial, len(dictionary))
    return [torch.randint(*words, (length,), generator=generator) for length in lengths]


@pytest.mark.parametrize("prefix", CARRIED)
def test_segments_are_one_pass(prefix, dictionary):
    model = build(f"{prefix}_transformer_lm", dictionary)
    streams = streams_of(dictionary, 83, 41, 100)  # far beyond the 32 positions of training
    marks = {"eos": dictionary.eos(), "pad": dictionary.pad()}
    for segment in (1, 7, 200):
        scores = stream_scores(model, streams, segment=segment, **marks)
        for stream, row in zip(streams, scores, strict=True):
            assert torch.allclose(row, unbroken(model, stream, dictionary.eos()), atol=2e-4)


@pytest.mark.parametrize("cutoff", [None, "10,20", "30"])
def test_scores_of_targets_are_fairseqs(cutoff, dictionary):
    softmax = {"adaptive_softmax_cutoff": cutoff, "adaptive_softmax_factor": 2} if cutoff else {}
    model = build("abc_mlp_transformer_lm", dictionary, **softmax)
    features = torch.randn(1, 57, 16)
    for targets in (torch.arange(57) % len(dictionary), torch.full((57,), 5)):
        with torch.no_grad():
            scores = target_scores(model, features[0], targets)
            output = (model.decoder.output_layer(features), None)
            expected = model.get_normalized_probs(output, log_probs=True)[0]
        assert torch.allclose(
            scores, expected.gather(1, targets.unsqueeze(1)).squeeze(1), atol=1e-5
        )


def test_restarted_positions(dictionary):
    """The memory is still there: a segment is not read as if it were alone."""
    model = build("abc_mlp_transformer_lm", dictionary)
    marks = {"eos": dictionary.eos(), "pad": dictionary.pad()}
    stream = streams_of(dictionary, 30)
    scores = {
        restart: stream_scores(model, stream, segment=10, restart_positions=restart, **marks)[0]
        for restart in (False, True)
    }
    assert torch.equal(scores[True][:10], scores[False][:10])
    assert not torch.allclose(scores[True][10:], scores[False][10:], atol=1e-3)
    alone = unbroken(model, stream[0][10:20], int(stream[0][9]))
    assert not torch.allclose(scores[True][10:20], alone, atol=1e-3)


@pytest.mark.parametrize("width", [6, 7])
@pytest.mark.parametrize("learned", [False, True])
def test_position_vectors_are_fairseqs(learned, width):
    embedding = PositionalEmbedding(60, width, padding_idx=1, learned=learned)
    given = embedding(torch.full((1, 50), 5))[0]
    assert torch.allclose(position_vectors(embedding, 0, 50), given, atol=1e-6)
    assert torch.allclose(position_vectors(embedding, 23, 20), given[23:43], atol=1e-6)
    if learned:
        with pytest.raises(MemAttnError, match="has 60 learned positions, but the text has 61"):
            position_vectors(embedding, 41, 20)


def perplexity(trained, *flags):
    path = ["--path", trained.checkpoint, "--cpu"]
    return attempt("memattn", "perplexity", trained.data, *path, *flags)


@pytest.fixture(scope="module")
def with_documents(language_model, corpus):
    """Its data, with the ids of its documents beside it."""
    text = (corpus / "test.docid").read_text(encoding="utf-8")
    (language_model.data / "test.docids").write_text(text, encoding="utf-8")
    return language_model


def of_fairseq(trained, window, *flags):
    """The perplexity that fairseq-eval-lm finds."""
    done = run(
        *("fairseq-eval-lm", trained.data, *PLUGGED, "--path", trained.checkpoint),
        *("--tokens-per-sample", 32, "--context-window", window, *flags),
    )
    (found,) = re.findall(r"Perplexity: (\S+)", done.stdout + done.stderr)
    return float(found)


def check_ranges(row, shown):
    """The ranges hold every token once, follow one another, and are in the table."""
    parts = row["by_position"]
    tokens = sum(part["tokens"] for part in parts)
    loss = sum(part["loss"] * part["tokens"] for part in parts) / tokens
    assert loss == pytest.approx(row["loss"])
    for part in parts:
        (line,) = (x for x in shown.splitlines() if x.startswith(f"{part['begin']} to "))
        assert f"{part['begin']} to {part['end'] - 1} " in line
        assert f"{part['perplexity']:.2f}" in line
        assert part["perplexity"] == pytest.approx(2 ** part["loss"])


def test_ranges_of_positions():
    losses = LossByPosition()
    losses.add(torch.tensor([0, 63, 64, 127, 128]), torch.tensor([1.0, 3.0, 5.0, 6.0, 7.0]))
    losses.add(torch.tensor([1, 1000]), torch.tensor([5.0, 0.0]))
    assert [(p.begin, p.end, p.tokens, p.loss) for p in losses.ranges()] == [
        (0, 64, 3, 3.0),
        (64, 128, 2, 5.5),
        (128, 256, 1, 7.0),
        (512, 1024, 1, 0.0),
    ]
    assert losses.tokens == 7
    assert losses.loss == pytest.approx(27 / 7)


def test_the_command(with_documents, tmp_path):
    trained, rows = with_documents, tmp_path / "rows.json"
    flags = ["--context-window", 0, 16, "--stateful", "--by-position", "--json", rows]
    done = perplexity(trained, *flags)
    assert done.returncode == 0, done.stderr
    by_way = {row["way"]: row for row in json.loads(rows.read_text())}
    for row in by_way.values():
        check_ranges(row, done.stdout.partition("tokens before")[2])
    shown = {line[:12].strip(): line.split() for line in done.stdout.splitlines()[1:]}
    for window in (0, 16):
        row = by_way[f"context {window}"]
        assert row["perplexity"] == pytest.approx(of_fairseq(trained, window), abs=0.02)
        assert f"{row['perplexity']:.2f}" in shown[f"context {window}"]
    (model,), _, task = load_model_ensemble_and_task([str(trained.checkpoint)])
    dictionary = task.source_dictionary
    task.load_dataset("test")
    tokens = torch.cat([block["target"] for block in task.dataset("test")])
    assert by_way["context 0"]["read"] == by_way["stateful"]["read"] == len(tokens)
    assert by_way["context 16"]["read"] > 1.8 * len(tokens)
    losses = unbroken(model.eval(), tokens, dictionary.eos()) / -math.log(2)
    assert by_way["stateful"]["loss"] == pytest.approx(float(losses.mean()), abs=1e-4)
    for part in by_way["stateful"]["by_position"]:
        expected = losses[part["begin"] : part["end"]]
        assert part["tokens"] == len(expected)
        assert part["loss"] == pytest.approx(float(expected.mean()), abs=1e-4)

    done = perplexity(trained, "--stateful", "--documents", "--json", rows, "--max-tokens", 64)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(rows.read_text())
    assert row["read"] == len(tokens)
    # The last line of each document, and every document begins anew.
    ids = (trained.data / "test.docids").read_text().split()
    ends = [i for i, token in enumerate(tokens.tolist()) if token == dictionary.eos()]
    lengths = torch.tensor([end + 1 for end in ends]).diff(prepend=torch.tensor([0])).tolist()
    sizes = {name: 0 for name in ids}
    for name, length in zip(ids, lengths, strict=True):
        sizes[name] += length
    rows_of = [unbroken(model, part, dictionary.eos()) for part in tokens.split([*sizes.values()])]
    expected = -float(torch.cat(rows_of).mean()) / math.log(2)
    assert row["loss"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--context-window", 32],
            "leave some of the --tokens-per-sample 32 to predict, but is 32",
        ),
        (["--context-window", 0, "--documents"], "--documents needs --stateful"),
        (["--stateful", "--max-tokens", 8], "--max-tokens must be at least --tokens-per-sample 32"),
    ],
)
def test_what_cannot_be_is_refused(flags, message, language_model):
    done = perplexity(language_model, *flags)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]


def blocks_of(data, folder, text, *flags):
    """A language model with learned positions, and the folder of its data with another test set."""
    positions = ["--decoder-learned-pos", "--max-update", 1, *flags]
    trained = train(data, folder / "model", *LANGUAGE_MODEL, *positions)
    shutil.copytree(data, folder / "bin")
    (folder / "test").write_text(text)
    preprocessed = ["--only-source", "--srcdict", data / "dict.txt", "--destdir", folder / "new"]
    run("fairseq-preprocess", *preprocessed, "--testpref", folder / "test")
    for suffix in ("bin", "idx"):
        shutil.copy(folder / f"new/test.{suffix}", folder / "bin")
    return Trained(folder / "bin", trained.checkpoint, trained.log)


def test_what_is_not_evaluated_is_an_error_or_counted(monolingual, tmp_path):
    flags = ["--sample-break-mode", "complete_doc", "--shorten-method", "truncate"]
    trained = blocks_of(monolingual, tmp_path, "the cat sees the dog\n\nthe dog\n", *flags)
    done = perplexity(trained, "--context-window", 0)
    assert done.returncode == 0
    assert "warning: 1 of 10 tokens of test are in no block" in done.stderr
    longer = ["--context-window", 0, "--tokens-per-sample", 8]
    assert perplexity(trained, *longer).returncode == 0
    (tmp_path / "bin/test.idx").write_bytes((tmp_path / "bin/valid.idx").read_bytes())
    shutil.copy(tmp_path / "bin/valid.bin", tmp_path / "bin/test.bin")
    done = perplexity(trained, "--context-window", 0, "--tokens-per-sample", 64)
    assert done.returncode == 1
    assert "may have at most the 32 positions of the model" in done.stderr


@pytest.mark.full
def test_an_adaptive_language_model_is_evaluated_as_trained(monolingual, tmp_path):
    flags = shlex.split(
        "--adaptive-input --adaptive-input-cutoff 200,400 --adaptive-softmax-cutoff 200,400 "
        "--tie-adaptive-weights --tie-adaptive-proj --criterion adaptive_loss "
        "--ddp-backend legacy_ddp --max-update 20"
    )
    trained = train(monolingual, tmp_path, *LANGUAGE_MODEL, *flags)
    valid = float(logged(trained.log, "valid")[-1]["valid_ppl"])
    # adaptive_loss takes the second word of each tail for padding and leaves it out; eval-lm
    # counts it.
    flags = ["--gen-subset", "valid", "--sample-break-mode", "none"]
    assert of_fairseq(trained, 0, *flags) == pytest.approx(valid, rel=0.05)


@pytest.mark.full
def test_softmax_attention(monolingual, tmp_path):
    flags = [flag for flag in LANGUAGE_MODEL if flag not in ("--abc-causal-slots", "4")]
    softmax = train(monolingual, tmp_path, *flags, "--arch", "transformer_lm", "--max-update", 1)
    done = perplexity(softmax, "--stateful")
    assert done.returncode == 1 and "--stateful needs a bounded memory" in done.stderr
    rows = tmp_path / "rows.json"
    done = perplexity(softmax, "--context-window", 16, "--json", rows)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(rows.read_text())
    assert row["perplexity"] == pytest.approx(of_fairseq(softmax, 16), rel=1e-4)
