"""The README.md of an exported model: what it is, what it was trained on, and how to load it."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import read_json

HEADER = struct.Struct("<9sQBQ")  # of an .idx file: magic, version, type, number of sentences
AUTO_CLASSES = (
    AutoModelForSeq2SeqLM,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
)
INPUTS = '**tokenizer("Some text.", return_tensors="pt")'
USES = {
    "seq2seq": f"ids = model.generate({INPUTS})",
    "causal": f"ids = model.generate({INPUTS}, max_new_tokens=100)",
    "masked": f"outputs = model({INPUTS})",
}
DECODE = "print(tokenizer.batch_decode(ids, skip_special_tokens=True))"
TRANSLATOR = """\
```python
from fairseq_memattn.transformers.document_translator import DocumentTranslator
translator = DocumentTranslator.from_pretrained("FOLDER")
print(translator.translate([["A sentence.", "The next one."], ["Another document."]]))
```

`memattn translate FOLDER --input FILE --output FILE` translates files. Both give each sentence its
context, the previous sentences of its document, which `model.generate` alone does not."""


@dataclass
class Facts:
    """What the card says beside the model itself.

    kind: "seq2seq", "causal" or "masked"
    flags: of fairseq-train, those whose values are not the defaults
    data: the folder as the user gives it; dictionaries: the number of symbols of each
    scores: rows of a measure, its value, and what it was measured on
    """

    name: str
    arch: str
    kind: str
    version: str
    flags: Sequence[str]
    data: str
    languages: Sequence[str] = ()
    dictionaries: Mapping[str, int] = field(default_factory=dict)
    scores: Sequence[Sequence[str]] = ()


def card(model: PreTrainedModel, facts: Facts) -> str:
    """The text of the model card."""
    count = sum(weight.numel() for weight in model.parameters())
    sizes = [f"{count:,} ({name})" for name, count in facts.dictionaries.items()]
    rows = [
        ["architecture of fairseq", f"`{facts.arch}`"],
        ["class of transformers", f"`{type(model).__module__}.{type(model).__name__}`"],
        ["parameters", f"{count:,}"],
        ["symbols of the dictionaries", ", ".join(sizes)],
    ]
    languages = ["language:", *(f"- {json.dumps(name)}" for name in facts.languages)]
    first_lines = ["---", "library_name: transformers", *(languages if facts.languages else [])]
    first_lines += ["tags:", "- fairseq-memattn", f"- {json.dumps(facts.arch)}", "---"]
    parts = [
        "\n".join(first_lines),
        f"# {facts.name}",
        f"`{facts.arch}`, trained with fairseq and fairseq-memattn, and converted by `memattn "
        f"export` of version {facts.version}. Its license is for its author to state: add "
        "`license:` to the first lines of this file.",
        "## Use",
        usage(model, facts),
        "## Model",
        table(["", ""], rows),
        "## Data",
        data_statement(facts),
        "## Training",
        "The flags of fairseq-train whose values are not the defaults:",
        "```\n" + " \\\n  ".join(facts.flags) + "\n```",
    ]
    if facts.scores:
        parts += ["## Scores", table(["measure", "score", "measured"], facts.scores)]
    return "\n\n".join(parts) + "\n"


def usage(model: PreTrainedModel, facts: Facts) -> str:
    """A few lines of Python that load the model and use it."""
    settings = getattr(model.config, "translation", None) or {}
    if settings.get("source_context") or settings.get("target_context"):
        return TRANSLATOR
    found = auto_classes(model)
    cls = found[0] if found else type(model).__name__
    imports = [f"from transformers import {', '.join(['AutoTokenizer', *found[:1]])}"]
    if not found:
        imports.append(f"from {type(model).__module__} import {cls}")
    code = [
        "import fairseq_memattn.transformers",
        *imports,
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'model = {cls}.from_pretrained("FOLDER")',
        USES[facts.kind],
        *([] if facts.kind == "masked" else [DECODE]),
    ]
    return "\n".join(["```python", *code, "```"])


def auto_classes(model: PreTrainedModel) -> list[str]:
    """The names of the Auto classes that load the model."""
    loaded: dict[str, Any] = {
        auto.__name__: auto._model_mapping.get(type(model.config), None) for auto in AUTO_CLASSES
    }
    return [
        name
        for name, found in loaded.items()
        if type(model) in (found if isinstance(found, tuple) else (found,))
    ]


def data_statement(facts: Facts) -> str:
    """The files of the data and their sizes, and the settings that the folder records."""
    folder = Path(facts.data.split(":")[0])
    rows = [
        [f"`{path.stem}`", _count(path), f"{path.with_suffix('.bin').stat().st_size:,}"]
        for path in sorted(folder.rglob("*.idx"))
        if path.with_suffix(".bin").is_file()
    ]
    parts = [f"Binarised by fairseq-preprocess in `{facts.data}`:"]
    if rows:
        parts.append(table(["file", "sentences", "bytes"], rows))
    if settings := preparation(folder):
        parts += ["Settings of the preparation:", table(["stage", "options"], settings)]
    return "\n\n".join(parts)


def _count(index: Path) -> str:
    """The number of sentences of a memory-mapped data set."""
    header = index.read_bytes()[: HEADER.size]
    if len(header) < HEADER.size or not header.startswith(b"MMIDIDX"):
        return ""
    return f"{HEADER.unpack(header)[-1]:,}"


def preparation(folder: Path) -> list[list[str]]:
    """The options of the stages of `memattn prepare`, and of its binarisation."""
    rows = []
    for parent in (folder.absolute().parent, folder.absolute().parent.parent):
        for path in sorted((parent / "stages").glob("*.json")):
            options = _object(path).get("options")
            if isinstance(options, dict) and options:
                rows.append([path.stem, ", ".join(f"{k} {v}" for k, v in options.items())])
        if rows:
            break
    binarised = _object(folder / "binarised.json")
    if "joined_dictionary" in binarised:
        rows.append(["binarise", f"joined_dictionary {binarised['joined_dictionary']}"])
    return rows


def recorded_languages(folder: Path) -> list[str]:
    """The languages of data that `memattn prepare` has binarised, where they are codes."""
    names = _object(folder / "binarised.json").get("languages", [])
    return [name for name in names if isinstance(name, str) and len(name) == 2]


def _object(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (OSError, MemAttnError):
        return {}
    return content if isinstance(content, dict) else {}


def score_rows(path: Path, content: Any) -> list[list[str]]:
    """The scores in the output of `memattn score --json`, `memattn perplexity --json` or sacreBLEU.

    Raises MemAttnError for other content.
    """
    entries = content if isinstance(content, list) else [content]
    rows = [row for entry in entries for row in _rows(entry)]
    if not rows or not all(_rows(entry) for entry in entries):
        raise MemAttnError(
            f"--score-file {path} must be what `memattn score --json`, `memattn perplexity --json` "
            "or sacrebleu writes, but has no scores in that form"
        )
    return rows


def _rows(entry: Any) -> list[list[str]]:
    try:
        if "measures" in entry:
            on = f"{Path(entry['reference']).name}, {entry['sentences']} sentences"
            return [
                [name, f"{result['score']:.2f}", f"{system} on {on}; {one['signature']}"]
                for name, one in entry["measures"].items()
                for system, result in one["systems"].items()
            ]
        if "perplexity" in entry:
            return [["perplexity", f"{entry['perplexity']:.5g}", str(entry["way"])]]
        return [[entry["name"], f"{entry['score']:.2f}", str(entry.get("signature", ""))]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
