"""Checkpoints load under torch's protection, and what should not load says so in one sentence."""

import os
import pickle
import re
import sys
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import ListDataset, language_pair_dataset, token_block_dataset
from fairseq.data.dictionary import Dictionary
from harness import PLUGGED, TRANSLATOR, attempt, train

from fairseq_memattn.host import checkpoints, installation, patches


def state(**extra):
    """The least that fairseq's loader accepts."""
    history = [
        {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 3}
    ]
    return {
        "args": None,
        "cfg": None,
        "model": {"weight": torch.randn(100)},
        "optimizer_history": history,
        "extra_state": {"train_iterator": {"epoch": 1}},
        **extra,
    }


class RunsCode:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_a_trained_checkpoint_needs_allowing_and_loads(bilingual, tmp_path):
    """With measures of validation, which are arrays of numpy."""
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"max_len_b": 5}', "--max-update", 1]
    path = str(train(bilingual, tmp_path, *TRANSLATOR, *bleu).checkpoint)
    allowed = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        needed = set(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    finally:
        torch.serialization.add_safe_globals(allowed)
    assert {"argparse.Namespace", "numpy.ndarray", "numpy.dtype"} <= needed
    loaded = checkpoint_utils.load_checkpoint_to_cpu(path)
    models, _ = checkpoint_utils.load_model_ensemble([path])
    for name, weight in models[0].state_dict().items():
        assert torch.equal(weight, loaded["model"][name])


@pytest.mark.parametrize("zipped", [True, False])
def test_plain_values_load(tmp_path, zipped):
    values = {
        "args": Namespace(lr=[0.1]),
        "scalars": [np.float64(1.5), np.float32(2.5), np.int64(3), np.bool_(True)],
        "arrays": [np.arange(3), np.ones(2, dtype=np.float16), np.zeros(2, dtype=np.int32)],
    }
    path = tmp_path / "plain.pt"
    torch.save(state(extra=values), path, _use_new_zipfile_serialization=zipped)
    loaded = checkpoint_utils.load_checkpoint_to_cpu(str(path))["extra"]
    assert loaded["args"] == values["args"]
    assert loaded["scalars"] == values["scalars"]
    for got, expected in zip(loaded["arrays"], values["arrays"], strict=True):
        np.testing.assert_array_equal(got, expected)


def test_values_written_by_numpy_1_load(tmp_path):
    path = tmp_path / "numpy1.pt"
    best = {"best": np.float64(1.5), "counts": np.arange(3)}
    torch.save(state(extra=best), path, _use_new_zipfile_serialization=False)
    written = path.read_bytes()
    assert b"numpy._core" in written
    path.write_bytes(written.replace(b"numpy._core", b"numpy.core"))
    loaded = checkpoints.read_checkpoint(path)["extra"]
    assert loaded["best"] == 1.5
    np.testing.assert_array_equal(loaded["counts"], np.arange(3))


def load_with_fairseq(path):
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))


@pytest.fixture(params=[load_with_fairseq, checkpoints.read_checkpoint])
def load(request):
    return request.param


@pytest.mark.parametrize("zipped", [True, False])
def test_code_is_refused(tmp_path, load, zipped, marker):
    path = tmp_path / "evil.pt"
    torch.save(state(extra=RunsCode(marker)), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(checkpoints.CheckpointError) as error:
        load(path)
    assert str(error.value).startswith(f"{path} is refused: it contains `{os.name}.system`")
    assert "weights_only" not in str(error.value)
    assert error.value.__suppress_context__  # nor does the traceback show torch's advice


def test_any_other_class_is_refused(tmp_path, load):
    path = tmp_path / "module.pt"
    torch.save(state(model=torch.nn.Linear(2, 2)), path)
    refused = "Linear`, which a checkpoint has no need of"
    with pytest.raises(checkpoints.CheckpointError, match=refused):
        load(path)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kept", [1, 10, 100, 0.5, -20])
def test_truncated_checkpoint(tmp_path, load, zipped, kept):
    path = tmp_path / "truncated.pt"
    torch.save(state(), path, _use_new_zipfile_serialization=zipped)
    written = path.read_bytes()
    path.write_bytes(written[: int(kept * len(written)) if kept == 0.5 else kept])
    words = f"^{re.escape(str(path))} cannot be loaded"
    with pytest.raises(checkpoints.CheckpointError, match=words):
        load(path)


def overwrite(path):
    """Writes over 12 bytes of a weight of 100 ones."""
    written = path.read_bytes()
    ones = torch.ones(3).numpy().tobytes()
    path.write_bytes(written.replace(ones, bytes(12), 1))
    assert path.read_bytes() != written


def test_overwritten_weights(tmp_path, load):
    path = tmp_path / "damaged.pt"
    torch.save(state(model={"weight": torch.ones(100)}), path)
    overwrite(path)
    words = f"^{re.escape(str(path))} cannot be loaded: it is damaged, its entry damaged/data/"
    for _ in range(2):
        with pytest.raises(checkpoints.CheckpointError, match=words):
            load(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("content", [b"", bytes(1000), pickle.dumps({"model": {}})])
def test_file_of_another_kind(tmp_path, load, content):
    path = tmp_path / "other.pt"
    path.write_bytes(content)
    with pytest.raises(checkpoints.CheckpointError, match=f"^{re.escape(str(path))} "):
        load(path)


@pytest.mark.parametrize("content", [[1, 2], {"a": 1}, torch.ones(2), state(model=None)])
def test_saved_by_torch_but_no_checkpoint(tmp_path, load, content):
    path = tmp_path / "other.pt"
    torch.save(content, path)
    with pytest.raises(checkpoints.CheckpointError, match=f"^{re.escape(str(path))} .* fairseq"):
        load(path)


def test_fairseq_generate_ends_with_the_reason(translator, tmp_path, marker):
    path = tmp_path / "evil.pt"
    torch.save(state(extra=RunsCode(marker)), path)
    done = attempt("fairseq-generate", translator.data, *PLUGGED, "--path", path)
    assert done.returncode != 0
    assert f"{path} is refused" in done.stderr.splitlines()[-1]
    assert "weights_only" not in done.stderr


def test_preparing_twice_wraps_once():
    load = checkpoint_utils.load_checkpoint_to_cpu
    allowed = len(torch.serialization.get_safe_globals())
    patches.prepare_fairseq()
    assert checkpoint_utils.load_checkpoint_to_cpu is load
    assert len(torch.serialization.get_safe_globals()) == allowed


def test_sample_break_mode_eos():
    sentences = [torch.tensor([4, 5, 2]), torch.tensor([6, 2])]
    blocks = token_block_dataset.TokenBlockDataset(
        ListDataset(sentences), [3, 2], None, pad=1, eos=2, break_mode="eos"
    )
    assert [block.tolist() for block in (blocks[0], blocks[1])] == [[4, 5, 2], [6, 2]]


def test_batch_buckets():
    sizes = [2, 3, 5, 8]
    sentences = ListDataset([torch.full((size,), 4) for size in sizes], sizes)
    pairs = language_pair_dataset.LanguagePairDataset(
        sentences, np.array(sizes), Dictionary(), num_buckets=2
    )
    assert pairs.src_sizes.tolist() == [3, 3, 8, 8]


@pytest.mark.parametrize("package", ["torch", "fairseq"])
def test_missing_package(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    expected = "which is missing: on Python 3.11 or 3.12, run `make env`, or `pip install torch"
    with pytest.raises(ImportError, match=expected):
        installation.check_environment()
