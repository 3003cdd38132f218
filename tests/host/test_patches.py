"""The table of what is replaced in fairseq, and what its older code makes torch warn about."""

import sys
import types
import warnings

import pytest
import torch
from fairseq.modules import MultiheadAttention

from fairseq_memattn.host.messages.handler import quiet_known_warnings
from fairseq_memattn.host.patches import CORRECTNESS, PYTHON, SAFETY, Patch, replace, table


@pytest.fixture
def host(monkeypatch):
    """A module in the place of fairseq's."""
    module = types.ModuleType("host_of_the_test")
    module.here, module.Class = 1, type("Class", (), {"method": 2})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def add_ten(old):
    """Of the test."""
    return old + 10


def patch(attribute, module="host_of_the_test", **options):
    return Patch(f"{module}:{attribute}", add_ten, **options)


def test_all_names_are_looked_up_before_one_is_replaced(host):
    for missing in ("gone", "Class.gone", "Gone.method"):
        with pytest.raises(ImportError, match=rf"fairseq.* has no host_of_the_test\.{missing}, "):
            replace([patch("here"), patch(missing)])
    with pytest.raises(ImportError, match="has no no_such_module.x, without which this does not"):
        replace([patch("here"), patch("x", module="no_such_module")])
    assert host.here == 1
    assert not hasattr(host, "gone") and not hasattr(host.Class, "gone")


def test_an_optional_name_that_is_missing_is_left_out(host, caplog):
    replace([patch("gone", required=False), patch("here"), patch("Class.method"), patch("here")])
    assert (host.here, host.Class.method) == (21, 12)
    assert not hasattr(host, "gone")
    assert "left out, because fairseq has no host_of_the_test.gone: of the test" in caplog.text


def test_a_command_that_does_not_run_is_not_imported():
    replace([patch("x", module="no_such_module", when_loaded=True)])


def test_the_table():
    names = [name for name, *_ in table()]
    assert {reason for _, reason, *_ in table()} == {SAFETY, CORRECTNESS, PYTHON}
    assert len(names) > 30 and all(what for *_, what in table())


def test_masks_of_two_types_are_no_warning():
    """fairseq's decoders give attention a mask of numbers and one of booleans."""
    attention = MultiheadAttention(8, 2, self_attention=True)
    x, padding = torch.zeros(3, 1, 8), torch.tensor([[False, False, True]])
    future = torch.full((3, 3), float("-inf")).triu(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet_known_warnings()
        attention(x, x, x, key_padding_mask=padding, attn_mask=future)
