"""What the pages say about the preparations: every command parses, and the code runs."""

import re
import shlex
from pathlib import Path

import pytest

from fairseq_memattn.data_prep.commands import PREPARATIONS, make_parser
from fairseq_memattn.data_prep.formats import FORMATS

ROOT = Path(__file__).parents[3]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/**/*.md")]
CALL = re.compile(r"memattn prepare\s*([a-z][\w-]*) (.+)")


def commands() -> list[tuple[str, str, str]]:
    """The page, the preparation and the arguments of each command in a block of code."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                if call := CALL.match(line.partition(" # ")[0]):
                    found.append((page.name, call[1].replace("_", "-"), call[2]))
    return found


def test_commands_parse(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for page, name, words in commands():
        arguments = [word for word in shlex.split(words) if word != "..."]
        try:
            if arguments[0] != "--help":
                make_parser(name).parse_args(arguments)
        except SystemExit:
            wrong.append(f"{page}: {name} {words}\n{capsys.readouterr().err}")
    assert wrong == []


def test_every_preparation_has_a_command() -> None:
    pages = "".join((ROOT / "docs" / page).read_text("utf-8") for page in ("corpora.md", "data.md"))
    assert [name for name in PREPARATIONS if f"`{name}`" not in pages] == []
    assert len(commands()) > 20


def test_the_format_in_the_page_is_the_one_in_the_package() -> None:
    page = (ROOT / "docs/data.md").read_text("utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.S)
    names: dict[str, object] = {}
    exec(block, names)
    assert names["MUDA"] == FORMATS["muda"]
