"""Adds to the site the Markdown that is elsewhere in the repository, and what is generated."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("docs/*.md", "recipes/*/README.md", "benchmarks/README.md", "examples/README.md"),
)
MODULES = {
    "layers": ("Layers", "fairseq_memattn.attention.nn"),
    "networks": ("Networks", "fairseq_memattn.networks"),
    "functions": ("Functions", "fairseq_memattn.attention"),
    "controls": ("Controls", "fairseq_memattn.attention.controls"),
}
LONG_CODE = re.compile(r"<code>(?=[^<]{50})")
LINK = re.compile(r"\]\(([^)#\s]+)")


def on_config(config: MkDocsConfig) -> None:
    config.watch += [str(ROOT / name) for name in ("README.md", "docs", "recipes")]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages at their paths in the repository, so that their links hold."""
    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    for path in [*pages, *linked_files(pages)]:
        uri = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    for path in sorted(ROOT.glob("examples/*.ipynb")):
        for uri, content in notebook_page(path).items():
            files.append(File.generated(config, uri, content=content))
    for name, content in option_pages().items():
        files.append(File.generated(config, f"reference/{name}", content=content))
    for page, (title, module) in MODULES.items():
        content = module_page(title, module)
        files.append(File.generated(config, f"reference/{page}.md", content=content))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Sets what the front matter of a page would, which GitHub would show."""
    if page.parent is None:  # a tab of one page
        page.meta["hide"] = ["navigation"]
    if page.file.src_uri == "CHANGELOG.md":
        page.meta["search"] = {"boost": 0.3}


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks code that is too long for one line of a table, for site.css."""
    return LONG_CODE.sub('<code class="long">', html)


def linked_files(pages: Iterable[Path]) -> list[Path]:
    """Pictures, scripts and others that pages link to, each once."""
    found = {
        (page.parent / link).resolve()
        for page in pages
        for link in LINK.findall(page.read_text("utf-8"))
        if "://" not in link
    }
    return sorted(path for path in found if path.is_file() and path.suffix != ".md")


def notebook_page(path: Path) -> dict[str, str | bytes]:
    """A notebook with its outputs as a page, and its pictures."""
    exporter = MarkdownExporter()
    name = path.relative_to(ROOT).with_suffix("")
    text, found = exporter.from_filename(
        str(path), {"unique_key": name.name, "output_files_dir": f"{name.name}_files"}
    )
    pictures = {f"{name.parent.as_posix()}/{key}": data for key, data in found["outputs"].items()}
    return {f"{name.as_posix()}.md": text, **pictures}


def module_page(title: str, module: str) -> str:
    """What a package exports, for mkdocstrings."""
    code = ROOT.joinpath(*module.split("."), "__init__.py").read_text("utf-8")
    (names,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    head = [f"# {title}", f"`from {module} import ...`"]
    return "\n\n".join([*head, *(f"::: {module}.{name}" for name in names), ""])


def option_pages() -> dict[str, str]:
    """The pages that docs/site/options.py writes."""
    with TemporaryDirectory() as folder:
        program = [sys.executable, str(ROOT / "docs/site/options.py"), folder]
        subprocess.run(program, cwd=ROOT, check=True, capture_output=True)
        return {path.name: path.read_text("utf-8") for path in sorted(Path(folder).iterdir())}
