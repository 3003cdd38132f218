"""What README and docs name exists: Python names, files, links, flags, architectures; code runs."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
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
NAME = re.compile(r"(?<![\w/.-])(fairseq_memattn(?:\.\w+)+)")
SHORT = re.compile(
    r"`((?:controls|ops|nn|modules|models|tasks|documents|qa|evaluation)\.\w[\w.]*)`"
)
FILE = re.compile(
    r"(?<![\w/.-])((?:fairseq_memattn|recipes|benchmarks|examples|tests|docs)/[\w./-]*\w)"
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--(?:abc|gmat|t5mem|t5)-[a-z0-9-]*[a-z0-9]")
ARCH = re.compile(r"--arch[ =]([a-z0-9_]+)\b(?!\.\.\.)")
# The example of docs/controls.md adds these.
OF_THE_EXAMPLE = {"--abc-turns", "abc_in_turn_transformer"}


def on_all_pages(unknown: Callable[[Path], Iterable[str]]) -> list[str]:
    """What a check finds wrong, with the names of the pages."""
    return [f"{page.relative_to(ROOT)}: {each}" for page in PAGES for each in unknown(page)]


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


def test_names_resolve(registered: None) -> None:
    """Short names stand without `fairseq_memattn.`, or without `fairseq_memattn.attention.`"""

    def unknown(page: Path) -> Iterator[str]:
        text = page.read_text("utf-8")
        yield from (name for name in set(NAME.findall(text)) if not resolves(name))
        for name in set(SHORT.findall(text)):
            packages = ("fairseq_memattn", "fairseq_memattn.attention")
            if not any(resolves(f"{package}.{name}") for package in packages):
                yield name

    assert on_all_pages(unknown) == []


def test_files_and_links_lead_somewhere() -> None:
    def unknown(page: Path) -> Iterator[str]:
        text = page.read_text("utf-8")
        yield from (file for file in set(FILE.findall(text)) if not exists(file))
        for link in LINK.findall(text):
            if "://" not in link:
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                if not target.exists() or (anchor and anchor not in anchors(target)):
                    yield link

    assert on_all_pages(unknown) == []


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


def test_flags_and_architectures_exist(flags: set[str]) -> None:
    from fairseq.models import ARCH_MODEL_REGISTRY

    known = OF_THE_EXAMPLE | flags | set(ARCH_MODEL_REGISTRY)

    def unknown(page: Path) -> set[str]:
        text = page.read_text("utf-8")
        return {*FLAG.findall(text), *ARCH.findall(text)} - known

    assert on_all_pages(unknown) == []


def test_patterns_find_what_they_are_for() -> None:
    assert len([words for page in PAGES for words in commands(page, "memattn")]) > 30
    assert len([words for page in PAGES for words in commands(page, r"fairseq-[\w-]+")]) > 20
    text = "".join(page.read_text("utf-8") for page in PAGES)
    found = [pattern.findall(text) for pattern in (NAME, SHORT, FILE, LINK, FLAG, ARCH)]
    assert [len(set(matches)) > 5 for matches in found] == [True] * 6
    assert not resolves("fairseq_memattn.attention.nn.Nothing")
    assert not resolves("fairseq_memattn.nothing")


def test_the_readme_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120
    code, _, rest = text.partition("```python\n")[2].partition("```\n\n```\n")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == rest.partition("```")[0]


def test_code_of_the_library_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from fairseq_memattn.attention.controls import registry

    monkeypatch.setattr(registry, "CONTROLS", dict(registry.CONTROLS))
    monkeypatch.setattr(registry, "_observers", [])
    for code in python_blocks(ROOT / "docs/library.md"):
        torch.manual_seed(1)
        exec(compile(code, "docs/library.md", "exec"), {"__name__": "example"})


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


def test_commands_of_memattn_parse(capsys: pytest.CaptureFixture[str]) -> None:
    from fairseq_memattn.cli import COMMANDS, make_parser

    def unknown(page: Path) -> Iterator[str]:
        for _, *words in commands(page, "memattn"):
            if words[:1] == ["prepare"] or "--help" in words:
                continue
            try:
                make_parser([word for word in words if word in COMMANDS][:1]).parse_args(words)
            except SystemExit:
                yield f"memattn {words}\n{capsys.readouterr().err}"

    assert on_all_pages(unknown) == []


def test_commands_of_fairseq_parse(registered: None, capsys: pytest.CaptureFixture[str]) -> None:
    from fairseq import options

    parsers = {
        "fairseq-train": options.get_training_parser,
        "fairseq-generate": options.get_generation_parser,
        "fairseq-interactive": options.get_interactive_generation_parser,
        "fairseq-validate": options.get_validation_parser,
        "fairseq-eval-lm": options.get_eval_lm_parser,
        "fairseq-preprocess": options.get_preprocessing_parser,
    }

    def unknown(page: Path) -> Iterator[str]:
        for program, *words in commands(page, r"fairseq-[\w-]+"):
            words = [word.removeprefix("path/to/site-packages/") for word in words]
            if program == "fairseq-hydra-train":
                folder, name = (words[words.index(f"--config-{of}") + 1] for of in ("dir", "name"))
                if not (ROOT / folder / f"{name}.yaml").is_file():
                    yield f"{folder}/{name}.yaml"
                continue
            parser = parsers[program]()
            try:
                if program == "fairseq-preprocess":
                    parser.parse_args(words)
                else:
                    options.parse_args_and_arch(parser, words)
            except SystemExit:
                yield f"{program} {words}\n{capsys.readouterr().err}"

    assert on_all_pages(unknown) == []
