"""Layers of all kinds in two processes. The tests of each kind have its layers and inputs."""

import layers
import pytest
import test_nn_abc as abc
import test_nn_global_memory as global_memory
import test_nn_memory_slots as memory_slots


@pytest.mark.full
def test_distributed(tmp_path):
    designs = [("mlp", "causal"), ("linformer", "cross"), ("rfa", "encoder")]
    layers.check_distributed(
        tmp_path,
        *((abc.layer(name, kind), abc.inputs(kind, batch=2), {}) for name, kind in designs),
        (global_memory.layer("lsh", "qkvo"), global_memory.inputs(), global_memory.options("left")),
        (memory_slots.layer(), memory_slots.inputs(), memory_slots.options("right")),
    )
