"""Versions agree, and names that moved are still found."""

import re
import subprocess
import tomllib
from pathlib import Path

import fairseq_memattn

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_one_version() -> None:
    newest, date = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", CHANGELOG, re.M)[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert project["version"] == fairseq_memattn.__version__ == newest
    assert re.findall(r"^(?:version|date-released): (.*)$", citation, re.M) == [newest, date]


def test_versions_descend() -> None:
    versions = re.findall(r"^## \[(.+?)\]", CHANGELOG, re.M)
    assert versions[0] == "Unreleased"
    numbers = [tuple(map(int, version.split("."))) for version in versions[1:]]
    assert numbers == sorted(set(numbers), reverse=True)


def test_the_notes_of_a_release() -> None:
    """By the command of the workflow."""
    workflow = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    (command,) = re.findall(r"^ *(sed .*) > notes\.md$", workflow, re.M)
    done = subprocess.run(
        ["bash", "-c", f"version=0.1.0; {command}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == CHANGELOG.partition("## [0.1.0] - 2026-11-23")[2].strip()
