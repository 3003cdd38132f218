"""DiscEvalMT (Bawden et al., 2018): anaphora and lexical choice, English to French.

https://github.com/rbawden/discourse-mt-test-sets
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.contrastive import Group
from fairseq_memattn.evaluation.directions import Direction
from fairseq_memattn.files import read_json

# A semi-correct translation agrees with its own context, which translates the source wrongly.
RIGHT = ("correct", "semi-correct")
WRONG = "incorrect"
PUBLISHED = ("anaphora.json", "lexical-choice.json")


def is_disceval(path: Path) -> bool:
    """Whether a path is a file with a JSON object; other sets in one file are lists."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        return file.read(1000).lstrip().startswith(b"{")


def disceval_direction(path: Path, groups: Sequence[Group]) -> Direction:
    """English to French for the two files that are published."""
    return ("en", "fr") if path.name in PUBLISHED else (None, None)


def read_disceval(path: Path) -> list[Group]:
    """The pairs of `anaphora.json` or `lexical-choice.json` in the order of the official script.

    The file has an object of blocks, which are ordered by their numbers. A block of anaphora has
    one source `src` and pairs `trg`, each with `correct` or `semi-correct`, `incorrect`, and the
    `type` of the pronoun, its gender and number. A block of lexical choice has a `type` and
    `examples`, each with its own `src` and one pair. All texts are lists of sentences, the last one
    current.

    The phenomenon is the name of the file without its suffix. The type of a group is `correct` or
    `semi-correct` in anaphora, and that of its block in lexical choice.

    Raises ValueError, which names the file, the block, and the pair in the block, counted from 1.
    """
    blocks = read_json(path)
    if not isinstance(blocks, dict) or not blocks:
        raise ValueError(f"{path} must hold an object of blocks")
    for name in blocks:
        if not name.isdecimal() or len(name) > 18:
            raise ValueError(f"{path}: the name of a block must be a number, but is {name!r:.40}")
    groups = []
    for name in sorted(blocks, key=int):
        where = f"{path}, block {name}"
        for number, pair in enumerate(_pairs(blocks[name], where), start=1):
            groups.append(_group(pair, path.stem, name, f"{where}, pair {number}"))
    return groups


class Pair(NamedTuple):
    """A pair as the file has it, unchecked.

    source: the sentences of the source
    target: the object with both translations
    kind: the type of a block of lexical choice; None in anaphora
    """

    source: Any
    target: Any
    kind: Any


def _pairs(block: Any, where: str) -> list[Pair]:
    pairs = []
    if isinstance(block, dict) and isinstance(block.get("examples"), list):
        for example in block["examples"]:
            if not isinstance(example, dict):
                raise ValueError(f"{where}: each of examples must be an object with src and trg")
            pairs.append(Pair(example.get("src"), example.get("trg"), block.get("type", "")))
    elif isinstance(block, dict) and isinstance(block.get("trg"), list):
        pairs = [Pair(block.get("src"), target, None) for target in block["trg"]]
    if not pairs:
        raise ValueError(f"{where}: must have a list of pairs, either trg or examples")
    return pairs


def _group(pair: Pair, phenomenon: str, block: str, where: str) -> Group:
    target = pair.target
    if not isinstance(target, dict):
        raise ValueError(f"{where}: must be an object with {RIGHT[0]} and {WRONG}")
    right = [key for key in RIGHT if key in target]
    if len(right) != 1:
        raise ValueError(f"{where}: must have either {' or '.join(RIGHT)}")
    kind, pronoun = (right[0], target.get("type")) if pair.kind is None else (pair.kind, None)
    for value in (kind, pronoun):
        if not isinstance(value, str | None):
            raise ValueError(f"{where}: type must be a string, but is {value!r:.40}")
    try:
        return Group(
            _sentences(pair.source, "src"),
            (_sentences(target[right[0]], right[0]), _sentences(target.get(WRONG), WRONG)),
            true_index=0,
            phenomenon=phenomenon,
            pronoun=pronoun,
            kind=kind or None,
            block=block,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _sentences(texts: Any, key: str) -> tuple[str, ...]:
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{key} must be a list of sentences, but is {texts!r:.40}")
    return tuple(texts)
