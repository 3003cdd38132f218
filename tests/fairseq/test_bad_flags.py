"""A mistake ends a command in one sentence that names the flag and the value."""

import shlex
from argparse import ArgumentParser

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from harness import LANGUAGE_MODEL, PLUGGED, TRANSLATOR, attempt, run

SLOTS_OF_ZERO = "--abc-causal-slots 0 --abc-cross-slots 0 --abc-encoder-slots 0"
MISTAKES = {
    "--abc-cross-slots -1": "--abc-cross-slots must be 0 (softmax attention) or more, but is -1",
    SLOTS_OF_ZERO: "--abc-causal-slots and --abc-cross-slots and --abc-encoder-slots "
    "must not all be 0",
    "--abc-activation tanh": "argument --abc-activation: invalid choice: 'tanh'",
    "--abc-phi-heads some": "argument --abc-phi-heads: invalid choice: 'some'",
    "--cross-self-attention": "--cross-self-attention attends to source and target at once",
    "--decoder-attention-heads 3": "--decoder-attention-heads must divide --decoder-embed-dim 32, "
    "but is 3",
    "--arch abc_workspace_transformer --abc-causal-slots 4": "--abc-causal-slots must be 0 with "
    "the control workspace, but is 4: its control vectors are computed from the whole sequence",
    "--arch abc_dilated_transformer --abc-stride 0": "--abc-stride must be at least 1, but is 0",
    "--arch abc_linformer_transformer --abc-max-length -1": "--abc-max-length must be at "
    "least 0, but is -1",
    "--arch abc_global_transformer --abc-global-positions 1,x": "--abc-global-positions must be "
    "positions from 0 with commas between them, but is '1,x'",
    "--arch abc_global_transformer --abc-global-positions 0,1,2 --abc-causal-slots 2": "--abc-"
    "global-positions must name at most 2 tokens, one for each slot that is left for them, but "
    "names 3",
}


def assert_one_sentence(done, command, sentence):
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{command}: error: {sentence}")
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(("flags", "sentence"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes(flags, sentence, bilingual, tmp_path):
    briefly = ["--max-update", 1, "--save-dir", tmp_path]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *briefly, *shlex.split(flags))
    assert_one_sentence(done, "fairseq-train", sentence)


def test_language_model_without_slots(monolingual, tmp_path):
    flags = ["--abc-causal-slots", 0, "--max-update", 1, "--save-dir", tmp_path]
    done = attempt("fairseq-train", monolingual, *LANGUAGE_MODEL, *flags)
    assert_one_sentence(done, "fairseq-train", "--abc-causal-slots must not")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("fairseq-train", "--finetune-from-model {checkpoint} --abc-cross-slots 16"),
        ("fairseq-train", "--restore-file {checkpoint} --abc-cross-slots 0"),
        ("fairseq-train", "--restore-file {checkpoint} --abc-cross-slots 8 --abc-phi-heads shared"),
        ("fairseq-generate", "--model-overrides \"{{'abc_cross_slots': 4}}\" --path {checkpoint}"),
    ],
)
def test_checkpoint_with_other_memories(command, flags, translator, tmp_path):
    given = shlex.split(flags.format(checkpoint=translator.checkpoint))
    if command == "fairseq-train":
        given = [*TRANSLATOR, "--max-update", 300, "--save-dir", tmp_path, *given]
    else:
        given = [*PLUGGED, *given]
    done = attempt(command, translator.data, *given)
    assert_one_sentence(done, command, "the checkpoint was trained with another --abc-c")


@pytest.mark.parametrize("arch", ["abc_mlp_transformer", "abc_mlp_transformer_lm"])
def test_help_explains_the_flags(arch):
    """fairseq-train --help itself knows nothing of any architecture's flags."""
    parser = ArgumentParser()
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    shown = " ".join(parser.format_help().split())
    explained = {
        "--abc-causal-slots": "memory slots of the decoder's causal attention",
        "--abc-activation {exp,sigmoid,relu}": "the ABC paper finds exp best",
        "--abc-phi-layers {shared,separate}": "one W_phi for all layers",
        "--abc-phi-heads {shared,separate}": "all with a shared one",
    }
    if "lm" not in arch:
        explained["--abc-cross-slots"] = "memory slots of the decoder's cross attention"
        explained["--abc-encoder-slots"] = "memory slots of the encoder's self-attention"
    for flag, meaning in explained.items():
        assert flag in shown and meaning in shown
    assert ("ABC_CROSS_SLOTS" in shown) == ("lm" not in arch)


@pytest.mark.parametrize(
    ("data", "flags", "sentence"),
    [
        ("{data}", "--path nothing.pt", "Model file not found: nothing.pt"),
        ("{data}", "--path {checkpoint} --gen-subset train7", "Dataset not found: train7"),
        ("{data}/nothing", "--path {checkpoint} -s en -t ru", "[Errno 2] No such file"),
    ],
)
def test_missing_files(data, flags, sentence, translator):
    names = {"data": translator.data, "checkpoint": translator.checkpoint}
    given = shlex.split(flags.format(**names))
    done = attempt("fairseq-generate", data.format(**names), *PLUGGED, *given)
    assert_one_sentence(done, "fairseq-generate", sentence)


def test_a_name_of_many_is_told_with_what_is_like_it(bilingual, tmp_path):
    flags = [*PLUGGED, "--arch", "abc_mlp_transformr", "--save-dir", tmp_path]
    done = attempt("fairseq-train", bilingual, *flags)
    first, *others = done.stderr.splitlines()
    assert first.startswith(
        "fairseq-train: error: argument --arch/-a: invalid choice: 'abc_mlp_transformr'; the most "
        "similar are abc_mlp_transformer, "
    )
    assert done.returncode == 2 and not others


@pytest.mark.parametrize("arch", ["gmat_bert", "abc_mlp_roberta"])
def test_an_encoder_alone_as_a_translator(arch, bilingual, tmp_path):
    flags = [*PLUGGED, "--arch", arch, "--max-tokens", 100, "--optimizer", "adam"]
    done = attempt("fairseq-train", bilingual, *flags, "--save-dir", tmp_path)
    words = "an encoder without a decoder (gmat_bert, abc_*_roberta) cannot be the model of a task"
    assert_one_sentence(done, "fairseq-train", words)


def test_input_that_is_not_utf8(translator, tmp_path):
    (tmp_path / "latin").write_bytes("caf\u00e9 a\ncaf\u00e9\n".encode("latin-1"))
    flags = ["--path", translator.checkpoint, "--input", tmp_path / "latin"]
    done = attempt("fairseq-interactive", translator.data, *PLUGGED, *flags)
    sentence = "the input must be UTF-8, but is not at byte 0xe9 of 'caf\ufffd a'; convert it"
    assert_one_sentence(done, "fairseq-interactive", sentence)


def test_a_flag_that_the_control_does_not_have_is_warned_of(bilingual, tmp_path):
    flags = ["--abc-stride", 7, "--max-update", 1, "--save-dir", tmp_path]
    done = run("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert "--abc-stride 7 is not used by the control mlp" in done.stdout + done.stderr
