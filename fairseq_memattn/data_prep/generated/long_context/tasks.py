"""The data and the scores of the tasks, as the files *.yaml name them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fairseq_memattn.data_prep.generated.long_context import examples


def dataset(
    kind: str,
    lengths: Sequence[int] = (256, 512, 1024),
    examples_of_length: int = 10,
    seed: int = 1,
    text: str | None = None,
    **model: Any,
) -> dict[str, Any]:
    """The split "test" of a task. lm_eval passes what `--metadata` has, and the model's arguments.

    lengths: of prompts, in tokens of the model's tokenizer; examples_of_length: for each of them
    text: a file of UTF-8 text, in the place of built-in sentences
    model: `tokenizer`, a folder or a tokenizer, or else the folder `pretrained`, with
        `trust_remote_code` or `gguf_file`

    Raises ValueError for a length without room for the facts, and for a text without sentences.
    """
    from datasets import Dataset

    sentences = examples.cut(Path(text).read_text(encoding="utf-8")) if text else None
    size, rows = size_of(**model), []
    for length in lengths:
        for number in range(examples_of_length):
            rng = Random(f"{seed} {kind} {length} {number}")
            facts = examples.KINDS[kind](rng)
            others = examples.read_on(rng, sentences) if sentences else examples.told(rng)
            row = facts._asdict() | {"length": length}
            rows.append(row | {"input": examples.prompt(rng, facts, others, length, size)})
    return {"test": Dataset.from_list(rows)}


def size_of(
    tokenizer: Any = None, pretrained: str | None = None, **model: Any
) -> Callable[[str], int]:
    """The function that counts tokens."""
    from transformers import AutoTokenizer

    if not callable(tokenizer):
        given = {name: model[name] for name in ("trust_remote_code", "gguf_file") if name in model}
        tokenizer = AutoTokenizer.from_pretrained(tokenizer or pretrained, **given)
    return lambda text: len(tokenizer(f" {text}", add_special_tokens=False).input_ids)


needle, recall, variables, counts, two_facts = (partial(dataset, kind) for kind in examples.KINDS)


def score(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Of all lengths, and of the length of the prompt."""
    found = examples.score(doc["pattern"], doc["answers"], results[0])
    return {"acc": found, f"acc_{doc['length']}": found}
