"""The pages with scripts: docs/slots.html and the template of `memattn view`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["docs/slots.html", "fairseq_memattn/templates/view/page.html"]
ELSEWHERE = re.compile(r"https?:|\bsrc=|\bhref=|@import|url\(|\bimport\b|\bfetch\(")


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return (ROOT / request.param).read_text("utf-8")


def test_nothing_is_loaded(page: str) -> None:
    assert ELSEWHERE.findall(page) == []


def test_the_script_finds_its_elements(page: str) -> None:
    ids = re.findall(r'\bid="([\w-]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'find\("([\w-]+)"\)', page)) <= set(ids)


def test_the_data_are_one_line(page: str) -> None:
    """docs/site/slots.py and `memattn view` replace it."""
    assert len(re.findall(r"^const data = .*;$", page, re.MULTILINE)) == 1


def test_text_can_be_read_on_the_strongest_colours() -> None:
    """At least 4.5, the contrast that WCAG 2 asks for, in light and in dark colours."""
    page = (ROOT / PAGES[1]).read_text("utf-8")
    (strongest,) = re.findall(r"--strongest: ([\d.]+)", page)
    themes = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        values = dict(re.findall(r"--([\w-]+): ([^;]+);", theme))
        text, below = of_hex(values["text"]), of_hex(values["page"])
        for name in ("read", "slot"):
            above = [float(x) for x in values[name].split(",")]
            mixed = [
                float(strongest) * a + (1 - float(strongest)) * b
                for a, b in zip(above, below, strict=True)
            ]
            assert contrast(text, mixed) >= 4.5
        assert contrast(of_hex(values["faint"]), below) >= 4.5


def of_hex(colour: str) -> list[float]:
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    return [float(x) for x in bytes.fromhex(digits)]


def contrast(one: list[float], other: list[float]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: list[float]) -> float:
    """Of sRGB, as WCAG 2 defines it."""
    red, green, blue = (
        x / 255 / 12.92 if x / 255 <= 0.04045 else ((x / 255 + 0.055) / 1.055) ** 2.4
        for x in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
