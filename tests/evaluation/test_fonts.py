"""Pictures with characters that matplotlib's default font lacks."""

import warnings

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager, rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fairseq_memattn.evaluation.fonts import fonts_for


def make_font(path, name, characters):
    """A font whose characters are squares."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 500), (500, 500), (500, 0)):
        pen.lineTo(corner)
    pen.closePath()
    glyphs = [".notdef", *(f"uni{ord(char):04X}" for char in characters)]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(glyphs)
    font.setupCharacterMap({ord(char): f"uni{ord(char):04X}" for char in characters})
    font.setupGlyf(dict.fromkeys(glyphs, pen.glyph()))
    font.setupHorizontalMetrics(dict.fromkeys(glyphs, (600, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": name, "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    font.setupPost()
    font.save(path)


@pytest.fixture
def install(tmp_path, monkeypatch):
    manager = font_manager.fontManager
    default = [e for e in manager.ttflist if e.name.startswith(("DejaVu", "Last Resort"))]
    monkeypatch.setattr(manager, "ttflist", default)
    installed = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: installed)

    def install(name, characters):
        path = tmp_path / f"{name}.ttf"
        make_font(path, name, characters)
        installed.append(str(path))

    yield install
    manager._findfont_cached.cache_clear()


def draw(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fonts_for(texts):
            figure = Figure()
            FigureCanvasAgg(figure)
            figure.text(0, 0, " ".join(texts))
            figure.canvas.draw()
            return rcParams["font.family"][1:]


def test_a_font_is_chosen_that_has_the_characters(install, capsys):
    install("Few", "我")
    install("Most", "我们书")
    install("Hindi", "क")
    assert draw(["we read", "我们", "书"]) == ["Most"]
    assert draw(["क 我"]) == ["Few", "Hindi"]
    assert draw(["we", "ö \u2581 мы"]) == []
    assert capsys.readouterr().err == ""
    assert len(rcParams["font.family"]) == 1


def test_a_file_that_is_no_font_is_skipped(install, capsys, tmp_path):
    install("Broken", "我")
    (tmp_path / "Broken.ttf").write_bytes(b"no font")
    assert draw(["我"]) == []
    assert "such as 我 (CJK)" in capsys.readouterr().err
