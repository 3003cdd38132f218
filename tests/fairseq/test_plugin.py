"""What importing the plugin does, and what it does not."""

import subprocess
import sys

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from harness import ROOT

import fairseq_memattn
from fairseq_memattn.attention.controls import CONTROLS, RIVALS
from fairseq_memattn.models.abc_roberta import ABCRoberta
from fairseq_memattn.models.abc_transformer import ABCTransformer
from fairseq_memattn.models.abc_transformer_lm import ABCTransformerLanguageModel

# What each control gives, but for the workspace, which has no causal form.
TRANSFORMERS = ("", "_wmt_en_de", "_iwslt_es_en")
LANGUAGE_MODELS = ("", "_wiki103", "_wiki103_32")
ROBERTAS = ("", "_base", "_tiny")
MODELS = {f"abc_{name}": name for name in CONTROLS} | {name: name for name in RIVALS}


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


def test_registered_classes_are_ours():
    expected = {}
    for prefix, control in MODELS.items():
        for size in TRANSFORMERS:
            expected[f"{prefix}_transformer{size}"] = (ABCTransformer, control)
        for size in () if control == "workspace" else LANGUAGE_MODELS:
            expected[f"{prefix}_transformer_lm{size}"] = (ABCTransformerLanguageModel, control)
        for size in ROBERTAS:
            expected[f"{prefix}_roberta{size}"] = (ABCRoberta, control)
    ours = {
        name: (cls.__base__, cls.control)
        for name, cls in ARCH_MODEL_REGISTRY.items()
        if issubclass(cls, ABCTransformer | ABCTransformerLanguageModel | ABCRoberta)
    }
    assert ours == expected
    assert MODEL_REGISTRY["abc_mlp_transformer"] is ARCH_MODEL_REGISTRY["abc_mlp_transformer"]


def test_registering_again_changes_nothing():
    before = dict(ARCH_MODEL_REGISTRY), dict(MODEL_REGISTRY)
    fairseq_memattn.register()
    assert before == (ARCH_MODEL_REGISTRY, MODEL_REGISTRY)


def test_importing_again_from_scratch_registers_the_same_names():
    """As a notebook does that drops the package from sys.modules to reload it."""
    done = python(
        "import sys, fairseq_memattn\n"
        "from fairseq.models import ARCH_MODEL_REGISTRY as registry\n"
        "names = set(registry)\n"
        "del sys.modules['fairseq_memattn']\n"
        "import fairseq_memattn\n"
        "assert set(registry) == names and 'abc_mlp_transformer' in names\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import fairseq_memattn",
        "import fairseq_memattn.models.abc_transformer",
        "import importlib; importlib.import_module('fairseq_memattn')",
    ],
)
def test_import_registers(statement):
    done = python(
        f"{statement}\nfrom fairseq.models import ARCH_MODEL_REGISTRY as registry\n"
        f"assert {{f'{{prefix}}_transformer' for prefix in {list(MODELS)}}} <= set(registry)"
    )
    assert done.returncode == 0, done.stderr


def test_import_without_fairseq_says_what_to_install():
    done = python("import sys; sys.modules['fairseq'] = None\nimport fairseq_memattn")
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: fairseq_memattn needs fairseq, which is missing: run")
    assert "pip install --no-build-isolation --no-deps fairseq-fixed==" in last


ATTEND = (
    "import torch; x = torch.ones(1, 2, 5, 4)\n"
    "assert torch.allclose(abc_attention(x, x, x, x, causal=True), x)\n"
)


@pytest.mark.parametrize("fairseq", ["missing", "installed"])
@pytest.mark.parametrize(
    "statement",
    [
        "from fairseq_memattn.attention import abc_attention",
        "import fairseq_memattn.attention as attention; abc_attention = attention.abc_attention",
        "from importlib import import_module as load\n"
        "abc_attention = load('fairseq_memattn.attention.ops.abc').abc_attention",
    ],
)
def test_attention_leaves_fairseq_alone(fairseq, statement):
    before = "import sys\n" + ("sys.modules['fairseq'] = None\n" if fairseq == "missing" else "")
    after = "assert sys.modules.get('fairseq') is None, 'fairseq was imported'"
    done = python(f"{before}{statement}\n{ATTEND}{after}")
    assert done.returncode == 0, done.stderr


def test_attention_first_and_models_later():
    done = python(
        "import fairseq_memattn.attention\n"
        "import fairseq_memattn\n"
        "fairseq_memattn.register()\n"
        "from fairseq.models import ARCH_MODEL_REGISTRY as registry\n"
        "assert 'abc_mlp_transformer' in registry"
    )
    assert done.returncode == 0, done.stderr


def test_prefetching_ends_before_the_interpreter():
    """A thread that frees tensors of numpy's memory while Python shuts down aborts the process."""
    done = python(
        "import fairseq_memattn, numpy, torch\n"
        "from fairseq.data.iterators import BufferedIterator\n"
        "class Endless:\n"
        "    def __len__(self): return 10**9\n"
        "    def __iter__(self):\n"
        "        while True:\n"
        "            for _ in range(10000): batch = torch.from_numpy(numpy.zeros(100))\n"
        "            yield batch\n"
        "batches = BufferedIterator(10**6, Endless())\n"
        "next(batches)\n"
    )
    assert done.returncode == 0, done.stderr
