"""The docstrings of the package as Markdown, for mkdocstrings."""

import re
from typing import Any

from griffe import Extension, Object

# `q: (B, H, T, D); k, v: ...` and `embed_dim: E`; what goes on in the next lines is indented.
ENTRY = re.compile(r"(\w+(?:, \w+)*): ")


class Lists(Extension):
    """Makes lists of the lines that describe arguments, each of which begins with its name."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    blocks = docstring.split("\n\n")
    return "\n\n".join(as_list(b) if ENTRY.match(b) else before_lists(b) for b in blocks)


def as_list(block: str) -> str:
    """A bullet for each line that begins with a name and a colon."""
    lines = []
    for line in block.split("\n"):
        entry = ENTRY.match(line)
        lines.append(f"- `{entry[1]}`: {line[entry.end() :]}" if entry else f"  {line.strip()}")
    return "\n".join(lines)


def before_lists(block: str) -> str:
    """An empty line, which Markdown wants, between a paragraph and its list."""
    return re.sub(r"^([^\s-].*)\n- ", r"\1\n\n- ", block, flags=re.MULTILINE)
