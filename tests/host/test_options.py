"""Options with which a result is lost or wrong end a command, and what a failed training saves."""

import errno
import math
from argparse import Namespace

import pytest
from fairseq import checkpoint_utils
from fairseq import options as fairseq_options
from harness import PLUGGED, TRANSLATOR, attempt
from omegaconf import OmegaConf

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness import training
from fairseq_memattn.host.correctness.options import (
    check_configuration,
    check_search,
    check_training,
    parse_options,
)


def assert_refused(done, message):
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr


def configuration(part="generation", **options):
    return OmegaConf.create(
        {
            "generation": {"nbest": 1, "beam": 5},
            "checkpoint": {
                "best_checkpoint_metric": "loss",
                "maximize_best_checkpoint_metric": False,
                "restore_file": "checkpoint_last.pt",
                "write_checkpoints_asynchronously": False,
            },
            "dataset": {"combine_valid_subsets": False},
            "task": {"_name": "document_translation", "data": "bin"},
            "model": {"_name": "transformer_lm"},
        }
        | {part: options}
        | ({"generation": {"nbest": 1, "beam": 5} | options} if part == "generation" else {})
    )


@pytest.mark.parametrize(
    ("part", "option", "value", "message"),
    [
        ("generation", "lenpen", math.nan, "--lenpen must be a finite number, but is nan"),
        ("generation", "nbest", 9, "--nbest must be at most --beam 5, but is 9"),
        ("dataset", "required_batch_size_multiple", 0, "must be at least 1, but is 0"),
        ("dataset", "num_workers", 10**9, "--num-workers must be at most 1024, but is 1000000000"),
        ("optimization", "max_epoch", -1, "--max-epoch must be at least 0, but is -1"),
        ("optimization", "lr", [0.1, -1.0], "--lr must be at least 0, but is -1.0"),
        ("optimizer", "adam_betas", "(0.9, 1.0)", "must be at least 0 and below 1, but is 1.0"),
        ("model", "dropout", math.nan, "--dropout must be at least 0 and below 1, but is nan"),
        ("model", "encoder_layers", -1, "--encoder-layers must be from 1 to 10000, but is -1"),
    ],
)
def test_values(part, option, value, message):
    with pytest.raises(MemAttnError) as info:
        check_configuration(configuration(part, **{option: value}))
    assert message in str(info.value)


def test_no_architecture():
    parser = fairseq_options.get_training_parser()
    with pytest.raises(MemAttnError, match="--arch is missing; memattn archs lists"):
        parse_options(fairseq_options.parse_args_and_arch, parser, ["data"])


def test_what_a_task_refuses():
    parser = fairseq_options.get_generation_parser()
    argv = ["data", "--task", "document_translation", "--replace-unk"]
    with pytest.raises(MemAttnError, match="--replace-unk does not work with --task document_tr"):
        parse_options(fairseq_options.parse_args_and_arch, parser, argv)


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("generate", {}, "--replace-unk needs the text of the data, with --dataset-impl raw"),
        ("generate", {"impl": "raw", "bpe": {}}, "--replace-unk does not work with --bpe in"),
        ("interactive", {"post_process": "@@ "}, "--replace-unk does not work with --post-process"),
        ("interactive", {"soft": "soft", "unk": None}, "--print-alignment soft works in"),
        ("generate", {"impl": "raw", "soft": "soft"}, "--print-alignment soft works in"),
        ("generate", {"constraints": "ordered"}, "--constraints works in fairseq-interactive only"),
        ("interactive", {"lm_path": "lm.pt"}, "--lm-path works in fairseq-generate only"),
        ("generate", {"impl": "raw", "bpe": None}, ""),
        ("interactive", {"bpe": {}}, ""),
    ],
)
def test_searches(command, options, message):
    """--replace-unk asks for them."""
    given = {"impl": "mmap", "bpe": None, "post_process": None, "soft": None, "unk": ""} | options
    more = {name: options[name] for name in ("constraints", "lm_path") if name in options}
    cfg = OmegaConf.create(
        {
            "generation": {
                "replace_unk": given["unk"],
                "print_alignment": given["soft"],
                "score_reference": False,
                **more,
            },
            "task": {"dataset_impl": given["impl"]},
            "common_eval": {"post_process": given["post_process"]},
            "bpe": given["bpe"],
            "tokenizer": None,
        }
    )
    if message:
        with pytest.raises(MemAttnError, match=message):
            check_search(cfg, command)
    else:
        check_search(cfg, command)
        assert cfg.generation.print_alignment == "hard"


@pytest.mark.parametrize(
    ("part", "option", "value", "message"),
    [
        ("checkpoint", "restore_file", "no/such.pt", "--restore-file no/such.pt does not exist"),
        (
            *("checkpoint", "write_checkpoints_asynchronously", True),
            "--write-checkpoints-asynchronously needs the package iopath",
        ),
    ],
)
def test_trainings(part, option, value, message):
    cfg = configuration()
    check_training(cfg)
    cfg[part][option] = value
    with pytest.raises(MemAttnError, match=message):
        check_training(cfg)


def test_commands_check_their_options(translator):
    flags = ["--path", translator.checkpoint, "--lenpen", "nan"]
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *flags)
    assert_refused(done, "--lenpen must be a finite number, but is nan")


def test_a_metric_that_is_not_logged(bilingual, tmp_path):
    """It is found in the first validation, and the training up to there is saved."""
    flags = ["--best-checkpoint-metric", "no_loss", "--save-dir", tmp_path, "--max-update", 2]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert_refused(done, "--best-checkpoint-metric must be a metric that validation logs, one of")
    assert ", but is no_loss" in done.stderr and "one of loss, ppl, " in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["crash.pt"]


@pytest.mark.parametrize("updates", [0, 2])
def test_a_failed_training_leaves_no_model_without_updates(
    updates, bilingual, tmp_path, monkeypatch
):
    from fairseq.tasks.translation import TranslationTask

    train_step = TranslationTask.train_step

    def fail(self, sample, model, criterion, optimizer, update_num, **options):
        if update_num == updates:
            raise KeyError("of the test")
        return train_step(self, sample, model, criterion, optimizer, update_num, **options)

    monkeypatch.setattr(TranslationTask, "train_step", fail)
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, "--save-dir", tmp_path)
    assert_refused(done, "fairseq-train: error: KeyError: 'of the test'")
    assert [file.name for file in tmp_path.iterdir()] == (["crash.pt"] if updates else [])
    assert (f"the model after 2 updates is in {tmp_path}/crash.pt" in done.stdout) == bool(updates)


def test_a_training_that_diverges(bilingual, tmp_path):
    """fairseq looks for the layer, and fails in that on an output that is a dictionary."""
    flags = ["--lr", 1e30, "--clip-norm", 0, "--max-update", 20, "--save-dir", tmp_path]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert_refused(done, "error: FloatingPointError: ")


@pytest.mark.parametrize("failures", [2, 3])
def test_a_checkpoint_on_a_full_disk(failures, bilingual, tmp_path, monkeypatch):
    """The third attempt is the last; a checkpoint is whole, or is not there."""
    import torch

    save, failed = torch.save, []

    def fail(checkpoint, file):
        if len(failed) < failures:
            failed.append(file.write(b"a part"))
            try:
                raise OSError(errno.ENOSPC, "No space left on device")
            finally:
                raise RuntimeError("unexpected pos 704 vs 598")  # as torch's
        save(checkpoint, file)

    monkeypatch.setattr(training, "WAITS", (0, 0))
    monkeypatch.setattr(torch, "save", fail)
    flags = ["--max-update", 1, "--save-dir", tmp_path, "--no-epoch-checkpoints"]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    if failures == 3:
        words = f".pt cannot be written in the folder {tmp_path}: No space left on device"
        assert_refused(done, words)
        assert not list(tmp_path.iterdir())
    else:
        assert done.returncode == 0
        torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["model"]


def layers(side, numbers):
    return {f"{side}.layers.{number}.fc1.weight": f"{side} {number}" for number in numbers}


def test_layers_to_keep():
    """Each side for itself; a checkpoint that has been saved after pruning is left as it is."""
    whole = layers("encoder", range(3)) | layers("decoder", range(3)) | {"decoder.norm": "norm"}
    model = Namespace(arch="transformer", encoder_layers_to_keep="0,2", decoder_layers_to_keep=None)
    pruned = checkpoint_utils.prune_state_dict(whole, model)
    assert list(pruned.values()) == [
        *("encoder 0", "encoder 2", "decoder 0", "decoder 1", "decoder 2", "norm")
    ]
    kept = layers("encoder", range(2)) | layers("decoder", range(3))
    assert [*pruned] == [*kept, "decoder.norm"]
    model = OmegaConf.create({"_name": "transformer_lm", "decoder_layers_to_keep": "1,3"})
    OmegaConf.set_struct(model, True)
    saved = layers("decoder", range(2))
    assert checkpoint_utils.prune_state_dict(saved, model) == saved


def test_layers_to_keep_of_a_training():
    """fairseq's dataclass has a list, and its models split text."""
    given = "data --arch transformer --encoder-layers-to-keep 0,2".split()
    parsed = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), given)
    assert parsed.encoder_layers_to_keep == "0,2"


def test_options_that_a_checkpoint_did_not_have_yet():
    known = {"_name": "document_translation", "source_context": 2}
    cfg = OmegaConf.create({"task": known, "model": {"dropout": 0.1}})
    given = {"eval_bleu_tokenizer": "zh", "source_context": 3, "dropout": 0.2, "other": 1}
    checkpoint_utils.overwrite_args_by_name(cfg, given)
    task = {**known, "eval_bleu_tokenizer": "zh", "source_context": 3}
    assert cfg == {"task": task, "model": {"dropout": 0.2}}
    legacy = OmegaConf.create({"task": Namespace(source_lang="en")}, flags={"allow_objects": True})
    checkpoint_utils.overwrite_args_by_name(legacy, {"source_lang": "ru"})
    assert legacy.task.source_lang == "ru"
