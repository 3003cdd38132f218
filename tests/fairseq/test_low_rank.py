"""`--abc-low-rank`: low-rank updates of a trained model, whose weights are frozen."""

import copy
from types import SimpleNamespace

import pytest
import torch
from harness import (
    COMMON,
    SOFTMAX,
    Trained,
    attempt,
    convert,
    flags_of,
    generate,
    hypotheses,
    preprocess,
    run,
    train,
)
from test_attention_transfer import criterion, pair
from test_attention_transfer import sample as batch
from test_modules import TINY, build, encode, language_model, prefix, source, step_by_step
from test_modules import translator as encoder_decoder

from fairseq_memattn.attention.nn.low_rank import merge_updates
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.checkpoints import read_checkpoint
from fairseq_memattn.modules.abc_attention import ABCAttention
from fairseq_memattn.modules.low_rank import DOWN, ORIGINAL, UP, fit_updates

RANK = 3


def translator(**options):
    return encoder_decoder(**{"abc_encoder_slots": 3, "dropout": 0.0, **options})


def roberta(**options):
    sizes = {key: value for key, value in TINY.items() if key.startswith("encoder")}
    slots = {"abc_encoder_slots": 3, "max_positions": 64, "dropout": 0.0}
    return build("abc_mlp_roberta", **{**sizes, **slots, **options}).eval()


def inputs(kind):
    sources = source()
    if kind is translator:
        return sources, sources.ne(1).sum(1), prefix()
    return (sources,) if kind is roberta else (prefix(),)


def outputs(model, kind):
    return model(*inputs(kind))[0]


def encoded(model):
    return encode(model, source())["encoder_out"][0]


def trained(kind, **options):
    """A model without updates whose weights are not those with which models begin."""
    model = kind(**options)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return model


def tuned(kind, **options):
    """A trained model after steps of low-rank tuning."""
    model = kind(abc_low_rank=RANK, **options)
    model.load_state_dict(trained(kind, **options).state_dict())
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for _ in range(3):
        gradients = torch.autograd.grad(outputs(model, kind).square().mean(), learning)
        with torch.no_grad():
            for weight, gradient in zip(learning, gradients, strict=True):
                weight -= 0.1 * gradient.sign()
    return model


def is_update(name):
    return name.endswith((UP, DOWN))


def is_control(name):
    return "controls." in name


each_kind = pytest.mark.parametrize("kind", [translator, language_model, roberta])


@each_kind
def test_the_first_outputs_are_those_of_the_trained_model(kind):
    before, model = trained(kind), kind(abc_low_rank=RANK)
    model.load_state_dict(before.state_dict())
    torch.testing.assert_close(outputs(model, kind), outputs(before, kind), rtol=1e-5, atol=1e-5)


def test_softmax_attention_has_the_outputs_of_the_frozen_model():
    """torch multiplies matrices in another order, which rounds otherwise, if they are frozen."""
    options = {"abc_encoder_slots": 0}
    before, model = trained(translator, **options), translator(abc_low_rank=RANK, **options)
    model.load_state_dict(before.state_dict())
    found = outputs(model, translator)
    torch.testing.assert_close(found, outputs(before, translator), rtol=1e-4, atol=1e-5)
    before.encoder.requires_grad_(False)
    assert torch.equal(encoded(model), encoded(before))


@each_kind
def test_only_controls_and_updates_learn(kind):
    model = kind(abc_low_rank=RANK)
    outputs(model, kind).square().sum().backward()
    attentions = [m for m in model.modules() if isinstance(m, ABCAttention)]
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert len(list(filter(is_update, names))) == 2 * 4 * len(attentions)
    assert any(map(is_control, names))
    for name, weight in model.named_parameters():
        learns = is_update(name) or is_control(name)
        assert weight.requires_grad == learns
        if name.endswith(UP):
            assert weight.grad.any() and not weight.any()
        elif not learns:
            assert weight.grad is None


@each_kind
def test_gradients_are_those_of_explicit_weights(kind):
    """Those of up and down, from the gradient G of W + up down: G down^T and up^T G."""
    model, plain = tuned(kind).double(), kind().double()
    plain.load_state_dict(model.state_dict())
    model.zero_grad()
    for one in (model, plain):
        outputs(one, kind).square().sum().backward()
    weights, explicit = (dict(one.named_parameters()) for one in (model, plain))
    for name, weight in weights.items():
        if is_control(name):
            torch.testing.assert_close(weight.grad, explicit[name].grad)
        if name.endswith(ORIGINAL):
            stem = name.removesuffix(ORIGINAL)
            up, down = weights[stem + UP], weights[stem + DOWN]
            gradient = explicit[f"{stem}weight"].grad
            torch.testing.assert_close(up.grad, gradient @ down.T)
            torch.testing.assert_close(down.grad, up.T @ gradient)


@torch.no_grad()
def by_all_routes(model, kind):
    """The outputs for whole sequences, and those of incremental decoding."""
    found = [outputs(model, kind)]
    if kind is translator:
        found.append(step_by_step(model.decoder, prefix(), encode(model, source()))[0])
    if kind is language_model:
        found.append(step_by_step(model.decoder, prefix())[0])
    return found


@each_kind
def test_the_merged_model_has_the_same_outputs(kind):
    model = tuned(kind)
    expected = by_all_routes(model, kind)
    assert not torch.allclose(expected[0], outputs(trained(kind), kind), atol=1e-2)
    loaded, merged, fast = kind(), copy.deepcopy(model), copy.deepcopy(model)
    loaded.load_state_dict(model.state_dict())
    merge_updates(merged)
    fast.make_generation_fast_()
    for one in (loaded, merged, fast):
        assert not any("parametrizations" in name for name in one.state_dict())
        for ours, theirs in zip(by_all_routes(one, kind), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_layers_with_softmax_attention_are_frozen():
    options = {"abc_causal_layers": "softmax,mlp", "abc_low_rank": RANK}
    model = language_model(**options)
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert {name.split(".")[2] for name in learning if is_update(name)} == {"1"}
    model.load_state_dict(trained(language_model, abc_causal_layers="softmax,mlp").state_dict())


def test_the_global_memory_that_a_conversion_adds_learns():
    memories = {"gmat_memory": 2, "gmat_memory_projections": "qkv", "abc_causal_slots": 3}
    model = build("gmat_transformer", **TINY, **memories, abc_low_rank=RANK)
    learning = [name for name, weight in model.named_parameters() if weight.requires_grad]
    others = [name for name in learning if not (is_update(name) or is_control(name))]
    assert others and all("memory_tokens" in name or "memory_proj" in name for name in others)


def test_attention_transfer_respects_frozen_weights():
    teacher, student = pair(abc_low_rank=RANK)
    for weights, learns in (("control", is_control), ("attention", None)):
        student.zero_grad()
        loss, _, _ = criterion(teacher, weights)(student, batch())
        loss.backward()
        for name, weight in student.named_parameters():
            learnt = is_control(name) or (is_update(name) and learns is None)
            assert (weight.grad is not None) == learnt, name
            assert weight.requires_grad == (is_update(name) or is_control(name))


def test_a_rank_with_quantisation_noise_is_refused():
    told = "--abc-low-rank must be 0 with --quant-noise-pq, but is 2"
    with pytest.raises(MemAttnError, match=told):
        encoder_decoder(abc_low_rank=2, quant_noise_pq=0.1)


# ---------------------------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    lines = [f"a{i % 7} b{i % 5} c{i % 3}" for i in range(12)]
    for split in ("train", "valid", "test"):
        for language in ("en", "de"):
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    return preprocess(folder, *"-s en -t de --joined-dictionary --workers 1".split())


def converted(data, path, output, flags):
    return flags_of(convert(data, path, "abc_mlp_transformer", output, flags))


@pytest.fixture(scope="module")
def tuning(data, tmp_path_factory):
    """A converted model's checkpoint, the flags of its tuning, and the tuning's result."""
    folder = tmp_path_factory.mktemp("tuning")
    softmax = train(data, folder / "softmax", *SOFTMAX, "--max-update", 2)
    slots = "--abc-causal-slots 3 --abc-cross-slots 2"
    told = converted(data, softmax.checkpoint, folder / "start.pt", slots)
    flags = [*COMMON, *told, "--abc-low-rank", 2, "--update-epoch-batch-itr", "True"]
    done = train(data, folder / "tuned", *flags, "--max-update", 4)
    return SimpleNamespace(start=folder / "start.pt", flags=flags, done=done, folder=folder)


def weights_of(path):
    return torch.load(path, weights_only=False)["model"]


@pytest.mark.full
def test_a_training_leaves_the_trained_weights(tuning):
    before, after = weights_of(tuning.start), weights_of(tuning.done.checkpoint)
    updates = {name: after.pop(name) for name in list(after) if is_update(name)}
    after = {name.replace(ORIGINAL, "weight"): weight for name, weight in after.items()}
    assert after.keys() == before.keys()
    changed = {name for name in before if not torch.equal(after[name], before[name])}
    assert changed == {name for name in before if is_control(name)}
    assert updates and all(weight.any() for weight in updates.values())


@pytest.mark.full
def test_resuming(tuning, data, tmp_path):
    for updates in (2, 4):
        done = train(data, tmp_path, *tuning.flags, "--max-update", updates)
    expected = weights_of(tuning.done.checkpoint)
    for name, weight in weights_of(done.checkpoint).items():
        assert torch.equal(weight, expected[name]), name


def test_a_checkpoint_of_another_rank(tuning, data, tmp_path):
    flags = [*tuning.flags, "--finetune-from-model", tuning.done.checkpoint, "--abc-low-rank", 4]
    done = attempt("fairseq-train", data, *flags, "--save-dir", tmp_path)
    assert "Cannot load model parameters" in done.stderr and done.returncode == 1


def test_a_merged_checkpoint(tuning, data, tmp_path):
    merged = tmp_path / "merged.pt"
    told = converted(data, tuning.done.checkpoint, merged, "--abc-low-rank 0")
    assert "--abc-low-rank" not in told
    assert weights_of(merged).keys() == weights_of(tuning.start).keys()
    search = ["--beam", 3, "--max-len-b", 5]
    before = hypotheses(generate(tuning.done, *search))
    after = hypotheses(generate(Trained(data, merged, ""), *search))
    for number, one in after.items():
        assert one.text == before[number].text
        assert one.positional == pytest.approx(before[number].positional, abs=2e-4)


def test_a_conversion_adds_updates(tuning, data, tmp_path):
    told = converted(data, tuning.start, tmp_path / "start.pt", "--abc-low-rank 2")
    assert told[told.index("--abc-low-rank") + 1] == "2"
    weights = weights_of(tmp_path / "start.pt")
    assert weights.keys() == weights_of(tuning.done.checkpoint).keys()
    assert not any(weight.any() for name, weight in weights.items() if name.endswith(UP))


def test_the_exported_model_has_the_same_outputs(tuning, data, tmp_path):
    flags = ["--tokenizer", "words", "--check", 2, "--output", tmp_path / "out"]
    run("memattn", "export", "--path", tuning.done.checkpoint, "--data", data, *flags)
    back = ["--output", tmp_path / "back.pt", "--dictionaries", tmp_path / "dictionaries"]
    run("memattn", "import-transformers", tmp_path / "out", *back)
    state, merged = read_checkpoint(tmp_path / "back.pt"), weights_of(tuning.done.checkpoint)
    fit_updates(merged, {})
    assert "abc_low_rank" not in vars(state["cfg"]["model"])
    assert state["model"].keys() == merged.keys()
    for name, weight in state["model"].items():
        assert torch.equal(weight, merged[name]), name
