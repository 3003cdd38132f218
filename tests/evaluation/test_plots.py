"""Pictures fit a page: what is too wide is wrapped, and nothing is left out."""

import pytest
import torch
from matplotlib.figure import Figure

from fairseq_memattn.evaluation import plots
from fairseq_memattn.evaluation.plots import Memories, draw_memories, make_grid
from fairseq_memattn.evaluation.training_log import TrainingLog, draw_trainings


@pytest.mark.parametrize(
    ("layers", "heads", "tokens", "columns", "lines", "labelled"),
    [
        (1, 1, 30, 1, 1, True),
        (1, 1, 230, 1, 4, True),
        (2, 4, 45, 2, 1, True),
        (1, 4, 23, 2, 1, True),
        (6, 4, 20, 4, 1, True),
        (12, 8, 200, 4, 1, False),
        (1, 1, 5000, 1, 24, False),
    ],
)
def test_grids(layers, heads, tokens, columns, lines, labelled):
    grid = make_grid(layers, heads, tokens)
    assert (grid.columns, len(grid.lines), grid.labelled) == (columns, lines, labelled)
    assert [token for line in grid.lines for token in line] == list(range(tokens))
    assert columns * (grid.width + plots.GAP) <= plots.MAX_WIDTH + plots.GAP + 1e-9
    assert layers * -(-heads // columns) * lines <= plots.MAX_ROWS


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_: figures.append(figure))
    return figures


@pytest.mark.full
def test_every_weight_is_in_one_panel(drawn, tmp_path):
    writing, reading = torch.rand(1, 2, 110, 4), torch.rand(1, 2, 9, 4)
    words = [f"w{number}" for number in range(110)]
    memories = Memories([0], [0, 1], words, words[:9], writing, reading)
    draw_memories(memories, ("up", "down"), tmp_path / "x.png", "title")
    (figure,) = drawn
    panels = [axes for axes in figure.axes if axes.images]
    found = {}
    for axes in panels:
        found.setdefault((axes.get_title(), axes.images[0].cmap.name), []).append(axes)
    for (title, colours), group in found.items():
        layer, head = (int(word) for word in title.replace(",", "").split() if word.isdigit())
        expected = (writing if colours == "Blues" else reading)[layer, head]
        shown = torch.cat([torch.tensor(axes.images[0].get_array().data.T) for axes in group])
        assert torch.equal(shown, expected)
        labels = [label.get_text() for axes in group for label in axes.get_xticklabels()]
        assert labels == words[: len(expected)]
    assert [len(group) for group in found.values()] == [2, 2, 1, 1]


def test_the_legend_has_the_curves(drawn, tmp_path):
    rows = [{"num_updates": number, "loss": 1.0, "bleu": 2.0} for number in (1, 2)]
    logs = [TrainingLog("a", rows, {"valid": rows, "valid1": rows}), TrainingLog("b", rows, {})]
    draw_trainings(logs, tmp_path / "x.png")
    (figure,) = drawn
    lines = {line.get_label(): line for axes in figure.axes for line in axes.lines}
    legend = figure.legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["a: validation", "a: valid1", "a: training", "b: training"]
    for name, shown in zip(names, legend.get_lines(), strict=True):
        for key in ("color", "linestyle", "marker"):
            assert getattr(shown, f"get_{key}")() == getattr(lines[name], f"get_{key}")()
