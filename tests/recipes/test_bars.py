"""The bars of recipes/bars.py."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes/bars.py"


@pytest.fixture(scope="module")
def bars():
    spec = spec_from_file_location("bars", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_means_and_spreads(bars):
    assert bars.read_bar("a=b=1,2,3") == ("a=b", 2.0, 1.0)
    assert bars.read_bar("one=4.5") == ("one", 4.5, 0.0)
    assert bars.read_bar("two=4.5±0.5") == ("two", 4.5, 0.5)


def test_a_picture(bars, tmp_path):
    output = tmp_path / "bars.png"
    assert bars.main(["a=1,2,3", "b=2±1", "--label", "BLEU", "--output", str(output)]) == 0
    assert output.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("given", ["a", "a=", "=1", "a=1,x", "a=1±2±3", "a=1,nan", "a=inf"])
def test_what_is_no_bar(bars, tmp_path, capsys, given):
    output = tmp_path / "bars.png"
    assert bars.main([given, "--label", "BLEU", "--output", str(output)]) == 2
    assert f"NAME=MEAN±SD, of finite numbers, but is {given!r}" in capsys.readouterr().err
    assert not output.exists()


def test_bars_of_one_name(bars, tmp_path, capsys):
    output = tmp_path / "bars.png"
    assert bars.main(["a=1", "a=2", "--label", "BLEU", "--output", str(output)]) == 2
    assert capsys.readouterr().err == "error: each bar must have a name of its own\n"
