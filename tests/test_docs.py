"""What README and docs name exists: Python names, files, links, flags, architectures; code runs."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("recipes/*/README.md")),
    ROOT / "benchmarks/README.md",
    ROOT / "examples/README.md",
]
NAME = re.compile(r"(?<![\w/.-])((?:fairseq_memattn|data_prep)(?:\.\w+)+)")
SHORT = re.compile(
    r"`((?:controls|ops|nn|modules|models|tasks|documents|qa|evaluation)\.\w[\w.]*)`"
)
FILE = re.compile(
    r"(?<![\w/.-])((?:fairseq_memattn|data_prep|recipes|benchmarks|examples|tests|docs)/[\w./-]*\w)"
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--(?:abc|gmat|t5mem|t5)-[a-z0-9-]*[a-z0-9]")
ARCH = re.compile(r"--arch[ =]([a-z0-9_]+)\b(?!\.\.\.)")
# The example of docs/controls.md adds these.
OF_THE_EXAMPLE = {"--abc-turns", "abc_in_turn_transformer"}


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def anchors(page: Path) -> Iterator[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    for heading in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def exists(file: str) -> bool:
    """Whether a file exists, or one with a suffix, as a script's `--out results/name` writes it.

    NAME stands for any name.
    """
    path = ROOT / file
    return (
        path.exists()
        or path.stem == "NAME"
        or (not path.suffix and any(path.parent.glob(f"{path.name}.*")))
    )


@pytest.fixture(scope="module")
def registered() -> None:
    import fairseq_memattn

    fairseq_memattn.register()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_names_resolve(page: Path, registered: None) -> None:
    names = set(NAME.findall(page.read_text("utf-8")))
    assert sorted(name for name in names if not resolves(name)) == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_short_names_resolve(page: Path, registered: None) -> None:
    """Names without `fairseq_memattn.`, or without `fairseq_memattn.attention.`"""
    names = set(SHORT.findall(page.read_text("utf-8")))
    packages = ("fairseq_memattn", "fairseq_memattn.attention")
    unknown = [n for n in names if not any(resolves(f"{package}.{n}") for package in packages)]
    assert sorted(unknown) == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_exist(page: Path) -> None:
    files = set(FILE.findall(page.read_text("utf-8")))
    assert sorted(file for file in files if not exists(file)) == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text("utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.fixture(scope="module")
def flags(registered: None) -> set[str]:
    """The flags of all of this plugin's models and tasks."""
    from argparse import ArgumentParser

    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    found: set[str] = set()
    for cls in (*MODEL_REGISTRY.values(), *TASK_REGISTRY.values()):
        if cls.__module__.startswith("fairseq_memattn"):
            parser = ArgumentParser(conflict_handler="resolve")
            cls.add_args(parser)
            found.update(parser._option_string_actions)
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_flags_exist(page: Path, flags: set[str]) -> None:
    named = set(FLAG.findall(page.read_text("utf-8"))) - OF_THE_EXAMPLE
    assert sorted(named - flags) == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_architectures_exist(page: Path, registered: None) -> None:
    from fairseq.models import ARCH_MODEL_REGISTRY

    named = set(ARCH.findall(page.read_text("utf-8"))) - OF_THE_EXAMPLE
    assert sorted(name for name in named if name not in ARCH_MODEL_REGISTRY) == []


def test_patterns_find_what_they_are_for() -> None:
    assert len([words for page in PAGES for words in commands(page, "memattn")]) > 60
    assert len([words for page in PAGES for words in commands(page, r"fairseq-[\w-]+")]) > 40
    text = "".join(page.read_text("utf-8") for page in PAGES)
    found = [pattern.findall(text) for pattern in (NAME, SHORT, FILE, LINK, FLAG, ARCH)]
    assert [len(set(matches)) > 5 for matches in found] == [True] * 6
    assert not resolves("fairseq_memattn.attention.nn.Nothing")
    assert not resolves("fairseq_memattn.nothing")


def test_the_readme_shows_the_example() -> None:
    block, _ = python_blocks(ROOT / "README.md")
    assert block in (ROOT / "examples/language_model.py").read_text("utf-8")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 180


LIBRARY = python_blocks(ROOT / "docs/library.md")


@pytest.mark.parametrize("code", LIBRARY, ids=[f"block {n}" for n in range(len(LIBRARY))])
def test_code_of_the_library_page_runs(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from fairseq_memattn.attention.controls import registry

    monkeypatch.setattr(registry, "CONTROLS", dict(registry.CONTROLS))
    monkeypatch.setattr(registry, "_observers", [])
    torch.manual_seed(1)
    exec(compile(code, "docs/library.md", "exec"), {"__name__": "example"})


def test_the_signatures_of_the_library_page() -> None:
    """Each class is documented with the parameters that its constructor has."""
    import inspect

    page = (ROOT / "docs/library.md").read_text("utf-8")
    signatures = re.findall(r"class (fairseq_memattn[\w.]+)\((.*?)\)\n```", page, re.S)
    assert len(signatures) == 3
    for name, text in signatures:
        module, _, cls = name.rpartition(".")
        names = re.findall(r"(\w+)(?:=[^,]*)?(?:, |,\s+|$)", text)
        expected = inspect.signature(getattr(import_module(module), cls)).parameters
        assert names == list(expected), name


# What stands for something in a command line, and something.
PLACEHOLDERS = {"...": [], "FLAGS": ["--arch", "transformer"], "ARCH": ["gmat_bert"]}


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """The command lines of a program in the code blocks, without what the shell does with them.

    program: a pattern; the words begin with its match
    """
    text = re.sub(r"\$\(.*?\)", "X", page.read_text("utf-8").replace("\\\n", " "))
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.M | re.S):
        for line in re.findall(rf"^ *(?:\$ |[A-Z_]+=\S+ )*({program} .*)$", block, re.M):
            words = shlex.split(re.split(r" (?:[|<>&]|2>|#)", f"{line} ")[0])
            yield [each for word in words for each in PLACEHOLDERS.get(word, [word])]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_of_memattn_parse(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fairseq_memattn.cli import COMMANDS, make_parser

    for _, *words in commands(page, "memattn"):
        if words[:1] == ["prepare"] or "--help" in words:
            continue
        try:
            make_parser([word for word in words if word in COMMANDS][:1]).parse_args(words)
        except SystemExit:
            pytest.fail(f"memattn {words}\n{capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_of_fairseq_parse(
    page: Path, registered: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from fairseq import options

    parsers = {
        "fairseq-train": options.get_training_parser,
        "fairseq-generate": options.get_generation_parser,
        "fairseq-interactive": options.get_interactive_generation_parser,
        "fairseq-validate": options.get_validation_parser,
        "fairseq-eval-lm": options.get_eval_lm_parser,
        "fairseq-preprocess": options.get_preprocessing_parser,
    }
    for program, *words in commands(page, r"fairseq-[\w-]+"):
        words = [word.removeprefix("path/to/site-packages/") for word in words]
        if program == "fairseq-hydra-train":
            folder, name = (words[words.index(f"--config-{of}") + 1] for of in ("dir", "name"))
            assert (ROOT / folder / f"{name}.yaml").is_file()
            continue
        parser = parsers[program]()
        try:
            if program == "fairseq-preprocess":
                parser.parse_args(words)
            else:
                options.parse_args_and_arch(parser, words)
        except SystemExit:
            pytest.fail(f"{program} {words}\n{capsys.readouterr().err}")
