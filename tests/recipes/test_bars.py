"""The bars of recipes/bars.py."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from matplotlib.axes import Axes

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


@pytest.mark.parametrize(
    ("given", "label", "start", "expected"),
    [
        (["a=30±1", "b=32±1"], "BLEU", None, (28, 34)),
        (["a=30±1", "b=32±1"], "BLEU", 0.0, (0, 34)),
        (["a=1±1", "b=3±1"], "BLEU", None, (0, 5)),
        (["a=-3±1", "b=-1±1"], "difference", None, (-5, 1)),
        (["a=90±2", "b=98±4"], "exact match, %", None, (84.5, 100)),
        (["a=90±2", "b=98±4"], "exact match", None, (84.5, 105.5)),
        (["a=90±2", "b=101±1"], "length, %", None, (84.5, 105.5)),
    ],
)
def test_the_axis(bars, given, label, start, expected):
    axis = bars.limits([bars.read_bar(one) for one in given], label, start)
    assert axis == pytest.approx(expected)


@pytest.mark.parametrize(("start", "drawn"), [("0", "barh"), ("1", "errorbar")])
def test_points_where_the_axis_does_not_begin_at_0(bars, tmp_path, monkeypatch, start, drawn):
    called = []
    for name in ("barh", "errorbar"):
        draw = getattr(Axes, name)

        def recorded(axes, *args, name=name, draw=draw, **options):
            called.append(name)
            return draw(axes, *args, **options)

        monkeypatch.setattr(Axes, name, recorded)
    args = ["a=2±1", "b=3", "--from", start, "--label", "BLEU", "--output", str(tmp_path / "a.png")]
    assert bars.main(args) == 0
    assert called[0] == drawn


def test_means_beside_the_rows(bars):
    assert bars.shown([32.146, 28], "BLEU") == ["32.15", "28.00"]
    assert bars.shown([99.53, 2.17], "exact match, %") == ["99.5", "2.2"]
    assert bars.shown([246.1, 1.2e17], "perplexity") == ["246.1", "1.2e+17"]


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
