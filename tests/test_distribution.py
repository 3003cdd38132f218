"""The sdist and the wheel: complete, well-formed, and usable in an environment of their own."""

import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
DATA = (".tsv", ".txt", ".jsonl", ".yaml", ".sh", ".html", ".typed")  # of packages, beside Python


def called(*argv: object, cwd: Path) -> str:
    done = subprocess.run([*map(str, argv)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built of it."""
    folder = tmp_path_factory.mktemp("dist")
    python = (sys.executable, "-m")
    called(*python, "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    called(*python, "twine", "check", "--strict", *folder.iterdir(), cwd=folder)
    return folder


def committed(*folders: str) -> set[str]:
    listed = called("git", "ls-files", *folders, cwd=ROOT).split("\n")
    return {name for name in listed if name.endswith((".py", *DATA))}


def test_nothing_is_missing(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    packaged = committed("fairseq_memattn", "hydra_plugins")
    assert packaged - {*ZipFile(wheel).namelist()} == set()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert (packaged | {"README.md", "LICENSE", "pyproject.toml"}) - names == set()


@pytest.mark.full
def test_the_wheel_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    """With the packages of this environment, but not with this checkout."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "-q")
    called(*pip, wheel, cwd=tmp_path)
    site = Path(
        called(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=tmp_path).strip()
    )
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    memattn = tmp_path / "venv/bin/memattn"
    assert re.fullmatch(
        r"fairseq-memattn \d+\.\d+\.\d+\n", called(memattn, "--version", cwd=tmp_path)
    )
    called(memattn, "new", "corpus", "talks", cwd=tmp_path)
    called(python, "talks/prepare.py", cwd=tmp_path)
    assert list((tmp_path / "talks/data/bin").glob("train.*.bin"))
    found = called(
        python, "-c", "import fairseq_memattn; print(fairseq_memattn.__file__)", cwd=tmp_path
    )
    assert Path(found.strip()).is_relative_to(tmp_path)


def test_the_container_is_built_by_make_env() -> None:
    """Its step is the one that makes the environment in which this test runs."""
    text = (ROOT / "Containerfile").read_text("utf-8")
    steps = re.findall(r"^RUN ((?:.*\\\n)*.*)", text, re.MULTILINE)
    assert [step for step in steps if "make env" in step and 'TORCH="$TORCH"' in step]
    (torch,) = re.findall(r"^ARG TORCH=(\S+)", text, re.MULTILINE)
    assert torch in (ROOT / "constraints.txt").read_text("utf-8").split()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for variable in re.findall(r"\b([A-Z]+)=", "".join(s for s in steps if "make env" in s)):
        assert re.search(rf"^{variable} (\?|:)= ", makefile, re.MULTILINE)
