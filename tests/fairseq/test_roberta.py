"""`abc_CONTROL_roberta` by fairseq's commands: masked words, conversion, and finetuning."""

import shlex
from argparse import Namespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from harness import COMMON, PLUGGED, SIZES, convert, logged, run, train

MASKED = [
    *(*COMMON, *SIZES[:2], *SIZES[4:6], *SIZES[8:10], *SIZES[12:14]),
    *shlex.split("--task masked_lm --criterion masked_lm --tokens-per-sample 64"),
    *shlex.split("--sample-break-mode eos"),  # sentences of all lengths, so there is padding
]


def loss(data, checkpoint, *flags):
    """The loss that fairseq-validate finds on the valid set."""
    done = run(
        *("fairseq-validate", data, *PLUGGED, "--path", checkpoint, "--log-format", "json"),
        *("--task", "masked_lm", "--required-batch-size-multiple", 1, "--max-tokens", 1000, *flags),
    )
    (row,) = logged(done.stdout + done.stderr, "valid")
    return float(row["valid_loss"])


@pytest.fixture(scope="module")
def softmax(monolingual, tmp_path_factory):
    """A RoBERTa of fairseq's, which has learned something."""
    folder = tmp_path_factory.mktemp("softmax")
    return train(monolingual, folder, *MASKED, "--arch", "roberta", "--max-update", 50)


def build(arch, **options):
    """With random weights, for a dictionary of 50 words."""
    torch.manual_seed(1)
    args = Namespace(max_positions=64, **options)
    ARCH_CONFIG_REGISTRY[arch](args)
    dictionary = Dictionary()
    for number in range(50):
        dictionary.add_symbol(f"word{number}")
    return ARCH_MODEL_REGISTRY[arch].build_model(args, Namespace(source_dictionary=dictionary))


def as_first_released(state):
    """A checkpoint as the published RoBERTa is: options as a Namespace, weights by older names."""
    weights = {}
    for name, weight in state["model"].items():
        name = name.replace("encoder.sentence_encoder", "decoder.sentence_encoder")
        name = name.replace("encoder.lm_head", "decoder.lm_head")
        if "self_attn.k_proj" in name or "self_attn.v_proj" in name:
            continue
        if "self_attn.q_proj" in name:
            parts = [
                state["model"][name.replace("decoder.", "encoder.").replace("q_proj", proj)]
                for proj in ("q_proj", "k_proj", "v_proj")
            ]
            name, weight = name.replace("q_proj.", "in_proj_"), torch.cat(parts)
        weights[name] = weight
    model = state["cfg"]["model"]
    options = {**state["cfg"]["task"], **vars(model), "task": "masked_lm", "arch": "roberta"}
    options |= {"criterion": "masked_lm", "optimizer": "adam", "lr_scheduler": "fixed"}
    return state | {"args": Namespace(**options), "cfg": None, "model": weights}


@pytest.mark.full
def test_a_checkpoint_of_the_first_release(softmax, tmp_path):
    state = torch.load(softmax.checkpoint, weights_only=False)
    older = tmp_path / "model.pt"
    torch.save(as_first_released(state), older)
    output = tmp_path / "converted.pt"
    convert(softmax.data, older, "abc_window_roberta", output, "--abc-encoder-slots 200")
    before = loss(softmax.data, softmax.checkpoint)
    assert loss(softmax.data, output) == pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize("arch", ["abc_mlp_roberta", "abc_mlp_roberta_tiny"])
def test_sizes_and_first_weights(arch):
    options = {"encoder_layers": 1} if arch == "abc_mlp_roberta" else {}  # of base size otherwise
    model = build(arch, **options)
    encoder = model.encoder.sentence_encoder
    (control,) = encoder.controls
    assert control.slots == 64
    assert control.heads == 1
    width = {"abc_mlp_roberta": 768, "abc_mlp_roberta_tiny": 128}[arch]
    assert control.proj.in_features == width
    # Write logits of standard deviation 4 for inputs of unit variance, and BERT's 0.02 elsewhere.
    assert control.proj.weight.detach().std() * width**0.5 == pytest.approx(4, rel=0.02)
    assert encoder.layers[0].self_attn.q_proj.weight.detach().std() == pytest.approx(0.02, rel=0.02)
    assert all(layer.self_attn.control is control for layer in encoder.layers)
