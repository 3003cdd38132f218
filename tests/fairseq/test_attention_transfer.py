"""`--criterion attention_transfer`: bounded memories imitate a trained model's attention."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, tasks
from harness import COMMON, convert, flags_of, logged, train, train_on
from test_modules import PAD, TINY, WORDS, build, language_model, prefix, source, translator

from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.criterions.attention_transfer import (
    AttentionTransferCriterion,
    bounded_attentions,
)
from fairseq_memattn.errors import MemAttnError

WIDE = {"abc_causal_slots": 64, "abc_cross_slots": 64}  # more than there are tokens


def sample(tokens=None, sources=None):
    sources = source() if sources is None else sources
    tokens = prefix(len(sources)) if tokens is None else tokens
    return {
        "net_input": {
            "src_tokens": sources,
            "src_lengths": sources.ne(PAD).sum(1),
            "prev_output_tokens": tokens,
        },
        "ntokens": int(tokens.ne(PAD).sum()),
    }


def criterion(teacher, weights="attention") -> AttentionTransferCriterion:
    made = AttentionTransferCriterion.__new__(AttentionTransferCriterion)
    torch.nn.Module.__init__(made)
    made.padding_idx = PAD
    made._teacher, made.weights = (teacher.requires_grad_(False),), weights
    return made


def share(teacher, student, given) -> float:
    loss, size, _ = criterion(teacher)(student, given)
    return float(loss) / size


def pair(**options):
    teacher = build("transformer", **TINY, dropout=0.0).eval()
    student = translator(dropout=0.0, **options)
    student.load_state_dict(teacher.state_dict() | controls(student))
    return teacher, student


def controls(student):
    return {name: w for name, w in student.state_dict().items() if "controls" in name}


def test_a_memory_that_equals_softmax_attention_has_no_error():
    teacher, student = pair(control="window", **WIDE)
    assert share(teacher, student, sample()) == pytest.approx(0, abs=1e-9)


def test_an_output_of_zeros_has_the_error_one():
    teacher, student = pair()
    for module in bounded_attentions(student).values():
        torch.nn.init.zeros_(module.out_proj.weight)
        torch.nn.init.zeros_(module.out_proj.bias)
    assert share(teacher, student, sample()) == pytest.approx(1)


def test_the_loss_is_the_mean_of_the_errors_of_each_attention():
    """Each error from the layers of the teacher, called one after another."""
    teacher, student = pair(control="window", abc_causal_slots=2, abc_cross_slots=64)
    given = sample()
    expected = []
    with torch.no_grad():
        inputs = given["net_input"]
        encoder_out = teacher.encoder(inputs["src_tokens"], inputs["src_lengths"])
        x = teacher.decoder.embed_scale * teacher.decoder.embed_tokens(inputs["prev_output_tokens"])
        x = x + teacher.decoder.embed_positions(inputs["prev_output_tokens"])
        x = x.transpose(0, 1)
        mask = teacher.decoder.buffered_future_mask(x)
        for layer, learner in zip(teacher.decoder.layers, student.decoder.layers, strict=True):
            right, _ = layer.self_attn(x, x, x, attn_mask=mask)
            ours, _ = learner.self_attn(x, x, x)
            expected.append(float((ours - right).square().sum() / right.square().sum()))
            memory, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
            x, *_ = layer(x, memory, padding, self_attn_mask=mask)
    assert min(expected) > 1e-3
    mean = sum(expected) / (2 * len(expected))  # cross attention has no error
    assert share(teacher, student, given) == pytest.approx(mean, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """fairseq converts the model and not its teacher."""
    teacher, student = pair()
    expected = share(teacher, student, sample())
    assert share(teacher, student.to(dtype), sample()) == pytest.approx(expected, rel=0.05)


def test_a_workspace_is_refused():
    with pytest.raises(MemAttnError, match="WorkspaceControl of .* passes its memory to the next"):
        bounded_attentions(translator(control="workspace", abc_causal_slots=0))


def test_padding_does_not_count():
    teacher, student = pair()
    tokens, sources = prefix(), source()
    expected = share(teacher, student, sample(tokens, sources))
    tokens = torch.nn.functional.pad(tokens, (0, 4), value=PAD)
    sources = torch.nn.functional.pad(sources, (3, 0), value=PAD)
    assert share(teacher, student, sample(tokens, sources)) == pytest.approx(expected, rel=1e-4)


def test_only_bounded_attentions_learn():
    teacher, student = pair()
    loss, _, _ = criterion(teacher)(student, sample())
    loss.backward()
    own = {id(p) for m in student.modules() if isinstance(m, ABCAttention) for p in m.parameters()}
    learnt = {id(p) for p in student.parameters() if p.grad is not None}
    pools = {id(p) for n, p in student.named_parameters() if "controls" in n}
    assert learnt == own | pools
    assert all(p.grad is None for p in teacher.parameters())


def test_only_controls_learn():
    """The gradients are those of all attentions, and the loss is the same."""
    teacher, student = pair()
    loss, _, _ = criterion(teacher)(student, sample())
    loss.backward()
    pools = {n: p.grad.clone() for n, p in student.named_parameters() if "controls" in n}
    student.zero_grad()
    again, _, _ = criterion(teacher, "control")(student, sample())
    again.backward()
    assert torch.equal(loss, again) and pools
    for name, weight in student.named_parameters():
        assert weight.requires_grad
        if name in pools:
            assert torch.equal(weight.grad, pools[name]) and weight.grad.any()
        else:
            assert weight.grad is None


def test_a_language_model():
    sizes = {key: value for key, value in TINY.items() if key.startswith("decoder")}
    teacher = build("transformer_lm", **sizes, dropout=0.0).eval()
    student = language_model(control="window", abc_causal_slots=64, dropout=0.0)
    student.load_state_dict(teacher.state_dict())
    tokens = prefix()
    given = {
        "net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)},
        "ntokens": tokens.numel(),
    }
    assert share(teacher, student, given) == pytest.approx(0, abs=1e-9)


def test_models_that_do_not_fit():
    teacher, student = pair()
    with pytest.raises(MemAttnError, match="needs a model with bounded memories"):
        criterion(teacher)(teacher, sample())
    teacher, queue = pair(control="window", **WIDE)
    with pytest.raises(MemAttnError, match="--attention-transfer-weights control needs a control"):
        criterion(teacher, "control")(queue, sample())
    deeper = translator(decoder_layers=3)
    with pytest.raises(MemAttnError, match="has no attention decoder.layers.2.self_attn"):
        criterion(teacher)(deeper, sample())
    task = SimpleNamespace(target_dictionary=WORDS)
    with pytest.raises(MemAttnError, match="needs --attention-teacher"):
        AttentionTransferCriterion(task, "")


@pytest.mark.full
def test_transfer_then_tuning(softmax, tmp_path):
    """Through the commands: convert, transfer, and training as usual from the result."""
    slots = ["--abc-causal-slots", 4, "--abc-cross-slots", 8]
    start = tmp_path / "start.pt"
    flags = " ".join(map(str, slots))
    told = flags_of(convert(softmax.data, softmax.checkpoint, "abc_mlp_transformer", start, flags))
    transfer = ["--criterion", "attention_transfer", "--attention-teacher", softmax.checkpoint]
    fast = ["--lr", 0.1, "--max-update", 30]
    first = train(softmax.data, tmp_path / "one", *COMMON, *told, *transfer, *fast)
    losses = [float(row["loss"]) for row in logged(first.log, "train_inner")]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    saved = torch.load(first.checkpoint, weights_only=False)
    assert not saved["criterion"] and not any("teacher" in name for name in saved["model"])
    transfer = [*COMMON, *told, *transfer, "--lr", 0.1, "--max-update", 2, "--dropout", 0]
    done = train_on(2, softmax.data, tmp_path / "processes", *transfer)
    assert logged(done.log, "train")
    told[1] = str(first.checkpoint)
    second = train(softmax.data, tmp_path / "two", *COMMON, *told, "--max-update", 2)
    assert logged(second.log, "valid")


@pytest.mark.full
def test_the_teacher_is_not_what_translates_in_validation(softmax):
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(softmax.checkpoint))["cfg"]
    cfg.task.eval_bleu = True
    task = tasks.setup_task(cfg.task)
    student = task.build_model(cfg.model)
    AttentionTransferCriterion(task, str(softmax.checkpoint))
    assert task.sequence_generator.model.single_model is student
