"""The attention is pure PyTorch: a machine without fairseq can use it."""

import subprocess
import sys

import pytest

SHOW_LOADED = "import sys, {module}; print(*sys.modules)"
MODULES = [
    "fairseq_memattn.attention",
    "fairseq_memattn.attention.ops.abc.naive",
    "fairseq_memattn.attention.controls",
    "fairseq_memattn.attention.ops.kernel.naive",
    "fairseq_memattn.attention.ops.window.naive",
    "fairseq_memattn.attention.ops.memory_slots.naive",
    "fairseq_memattn.attention.ops.global_memory.naive",
]


@pytest.mark.parametrize("module", MODULES)
def test_needs_neither_fairseq_nor_its_configuration(module):
    code = SHOW_LOADED.format(module=module)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(shown.stdout.split())
    assert module in loaded
    assert not loaded & {"fairseq", "omegaconf", "hydra"}
