"""ControlPool: what the layers of one forward pass share, and with whom they do not."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from fairseq_memattn.attention.controls import ControlOptions, Sizes
from fairseq_memattn.attention.nn.control_pool import ControlPool, ControlSpec


def pool():
    """A pool whose layers have workspaces, and the reference of its first layer."""
    made = ControlPool([ControlSpec("workspace", Sizes(8, 3), ControlOptions())], tied=True)
    return made, made.for_next_layer()


def test_threads_do_not_share_values():
    made, layer = pool()
    both = Barrier(2, timeout=60)

    def compute(name):
        with made.forward_pass(), made.carrying(name):
            layer.shared.values["memory"] = name
            both.wait()
            found = layer.shared.values["memory"], layer.carried
            both.wait()
            return found

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(compute, "ab")) == [("a", "a"), ("b", "b")]
    assert layer.shared is None
    assert layer.carried is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_shares_with_its_own_layers_alone(copied):
    made, layer = pool()
    with made.forward_pass():
        other, its_layer = copied((made, layer))
        assert its_layer.shared is None
        with other.forward_pass():
            its_layer.shared.values["memory"] = 1
            assert its_layer.shared.values == {"memory": 1}
            assert layer.shared.values == {}
