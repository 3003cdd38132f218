"""What `make wheelhouse` packs, and what it and its install.sh refuse. Nothing is downloaded."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts import load

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes/wheelhouse"
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def by_name(lines):
    found = map(Requirement, (line for line in lines if line and not line.startswith("#")))
    return {canonicalize_name(one.name): one.specifier for one in found}


def listed():
    return by_name((FOLDER / "requirements.txt").read_text().splitlines())


def test_the_list_has_what_the_project_requires():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = by_name(project["dependencies"] + project["optional-dependencies"]["data"])
    del wanted["matplotlib"]
    assert wanted.keys() <= listed().keys()
    assert all(listed()[name] == wanted[name] for name in wanted if wanted[name])


def test_the_list_has_what_fairseq_requires():
    wanted = by_name(line for line in requires("fairseq-fixed") if "extra ==" not in line)
    for left_out in ("torch", "torchaudio", "cython"):
        del wanted[left_out]
    assert wanted.keys() <= listed().keys()
    exact = {name for name, versions in wanted.items() if "==" in str(versions)}
    assert {name: listed()[name] for name in exact} == {name: wanted[name] for name in exact}


def test_the_list_agrees_with_the_constraints():
    pinned = by_name((ROOT / "constraints.txt").read_text().splitlines())
    for name, versions in listed().items():
        assert versions.contains(str(pinned[name])[2:]), name


def test_an_archive_of_wheels(tmp_path):
    module = load("wheelhouse/pack.py")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "requirements.txt").write_text("one\n")
    for year in (1999, 2001):
        with zipfile.ZipFile(wheels / "one.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(zipfile.ZipInfo("one/b.py", (year, 1, 1, 0, 0, 0)), "b" * 100)
            wheel.writestr(zipfile.ZipInfo("one/a.py", (year, 1, 1, 0, 0, 0)), "a" * 100)
        module.pack(wheels, tmp_path / f"{year}.tar.xz")
    packed = (tmp_path / "1999.tar.xz").read_bytes()
    assert packed == (tmp_path / "2001.tar.xz").read_bytes()
    with tarfile.open(tmp_path / "1999.tar.xz") as tar:
        assert tar.getnames() == ["one.whl", "requirements.txt"]
        with zipfile.ZipFile(tar.extractfile("one.whl")) as wheel:
            assert [(file.filename, file.compress_type) for file in wheel.infolist()] == [
                ("one/a.py", zipfile.ZIP_STORED),
                ("one/b.py", zipfile.ZIP_STORED),
            ]
            assert wheel.read("one/b.py") == b"b" * 100
    assert {path.name for path in tmp_path.iterdir()} == {"wheels", "1999.tar.xz", "2001.tar.xz"}


def run(*command, **settings):
    return subprocess.run(
        [*map(str, command)],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )


def test_it_needs_a_network(tmp_path):
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    settings["BIN"] = str(Path(sys.executable).parent)
    done = run("recipes/wheelhouse.sh", RUNNING, tmp_path / "out", **settings)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "error: antlr4-python3-runtime cannot be downloaded, see above; this needs a network"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["3.12"], "usage: recipes/wheelhouse.sh VERSION FOLDER, but the number of arguments is 1"),
        (["3.10", "out"], "error: VERSION must be 3.11 or 3.12, but is 3.10"),
        (["3.12", "docs"], "error: docs must be a new or empty folder, but has files"),
        (["3.12", "out"], "error: no python in nowhere; run make env, or set BIN"),
    ],
)
def test_packing_is_refused_in_one_sentence(arguments, message):
    done = run("recipes/wheelhouse.sh", *arguments, BIN="nowhere")
    assert done.returncode == 2 and done.stderr.startswith(message)


TOO_OLD = "torch must be 2.6 or newer, but PYTHON has 2.5.1"
BROKEN = (
    "torch 2.6 or newer must be installed, but PYTHON does not import it: ImportError: no libcudart"
)


@pytest.mark.parametrize(
    ("version", "settings", "torch", "message"),
    [
        (None, {}, "", "no wheels-VERSION.tar.xz beside "),
        (RUNNING, {"PYTHON": "none"}, "", "PYTHON must be a Python, but none does not run"),
        ("3.9", {}, "", f"the wheels are for Python 3.9, but PYTHON is {RUNNING}; set PYTHON"),
        (RUNNING, {}, "raise ImportError('no libcudart')", BROKEN),
        (RUNNING, {}, "__version__ = '2.5.1'", TOO_OLD),
    ],
)
def test_an_installation_is_refused_in_one_sentence(tmp_path, version, settings, torch, message):
    shutil.copy(FOLDER / "install.sh", tmp_path)
    if version:
        (tmp_path / f"wheels-{version}.tar.xz").touch()
    (tmp_path / "torch.py").write_text(torch)
    settings = {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path), **settings}
    done = run(tmp_path / "install.sh", **settings)
    assert done.returncode == 1 and not done.stdout
    message = re.sub(r"PYTHON (is|has|does)", rf"{sys.executable} \1", message)
    assert done.stderr.startswith(f"error: {message}") and len(done.stderr.splitlines()) == 1
