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
