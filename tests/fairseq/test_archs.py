"""`memattn archs`: names, sizes, flags and defaults are those of the models that fairseq builds."""

import json
from argparse import Namespace

import pytest
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from harness import PLUGGED

from fairseq_memattn.cli import main
from fairseq_memattn.cli.shared import architectures

OURS = [one for one in architectures.architectures()]


def archs(capsys, *arguments):
    assert main(["archs", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_every_architecture_is_listed(capsys):
    text = archs(capsys)
    for one in OURS:
        assert f"\n{one.pattern} " in text
        assert one.control in text
        assert one.pattern.replace("CONTROL", one.control) == one.name
    assert "abc_workspace has no CONTROL_transformer_lm, CONTROL_transformer_lm_wiki103," in text


def test_patterns(capsys):
    names = [line.split()[0] for line in archs(capsys, "t5mem_v?", "gmat*").splitlines() if line]
    models = ["gmat_bert", "gmat_bert_tiny", "gmat_genbert", "gmat_genbert_tiny"]
    expected = ["t5mem_v1", "t5mem_v2", "t5mem_v3", "t5mem_v4", *models, "gmat_transformer"]
    assert names == ["architecture", *expected, "Parameters:"]


@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        ("abc_mlp_roberta_tiny", 128 + 1),
        ("rfa_transformer_lm", 2 * 512),
        ("gmat_genbert_tiny", 128 + 1),
    ],
)
def test_parameters_are_those_of_the_model(name, vocabulary):
    """vocabulary: the parameters of a word"""
    words = Dictionary()
    args = Namespace(max_positions=512, max_source_positions=512, max_target_positions=512)
    args.tokens_per_sample = 512
    ARCH_CONFIG_REGISTRY[name](args)
    task = Namespace(source_dictionary=words, target_dictionary=words, args=args, cfg=args)
    task.max_positions = lambda: 512
    model = ARCH_MODEL_REGISTRY[name].build_model(args, task)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert architectures.parameters(name) == count - len(words) * vocabulary


def test_an_adaptive_vocabulary_is_not_counted():
    small, large = (
        architectures.parameters(f"abc_mlp_transformer_lm{size}") for size in ("", "_wiki103")
    )
    assert small < 20e6
    assert 16 * 12 * 1024**2 < large < 1.01 * 16 * 12 * 1024**2


def test_flags_of_one(capsys):
    text = archs(capsys, "abc_dilated_transformer")
    assert "--abc-stride  [2]" in text
    assert "--abc-encoder-slots  [0]" in text
    assert "--abc-phi-heads {shared,separate}  [separate]" in text
    for other in ("--abc-activation", "--abc-rfa-gate", "--encoder-layers"):
        assert other not in text
    assert "--encoder-layers  [6]" in archs(capsys, "abc_dilated_transformer", "--all-flags")
    assert "--abc-activation" in archs(capsys, "abc_mlp_roberta")


def test_the_flags_are_accepted(capsys, tmp_path):
    """fairseq's parser takes all of them, with the values that are said to be the defaults."""
    from fairseq import options

    archs(capsys, "t5mem_v1", "gmat_bert", "abc_gated_transformer_lm", "--json", tmp_path / "j")
    for one in json.loads((tmp_path / "j").read_text()):
        given = [
            (option["flag"], option["default"])
            for option in one["flags"]
            if option["default"] not in (None, "") and not isinstance(option["default"], bool)
        ]
        flags = [str(part) for pair in given for part in pair]
        parser = options.get_training_parser()
        base = ["data", *map(str, PLUGGED), "--arch", one["name"]]
        args = options.parse_args_and_arch(parser, [*base, *flags])
        plain = options.parse_args_and_arch(options.get_training_parser(), base)
        assert vars(args) == vars(plain)
