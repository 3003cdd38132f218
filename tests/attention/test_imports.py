"""The attention is pure PyTorch: a machine without fairseq can use it."""

import subprocess
import sys

SHOW_LOADED = "import sys, {modules}; print(*sys.modules)"
OPERATIONS = "abc additive global_memory kernel lsh memory_slots mixture window".split()
MODULES = [
    "fairseq_memattn.attention",
    "fairseq_memattn.attention.controls",
    "fairseq_memattn.attention.nn",
    *(f"fairseq_memattn.attention.ops.{operation}.naive" for operation in OPERATIONS),
]


def test_needs_neither_fairseq_nor_its_configuration():
    code = SHOW_LOADED.format(modules=", ".join(MODULES))
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(shown.stdout.split())
    assert loaded.issuperset(MODULES)
    assert not loaded & {"fairseq", "omegaconf", "hydra"}
