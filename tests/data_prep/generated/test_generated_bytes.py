"""The generated corpora are the same bytes for the same options, with every version of the code.

The digests were computed on one machine. `hash()`, the order of a set, the locale or a change to a
table of words or templates would change them; then the VERSION of the corpus has to change too.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest

from fairseq_memattn.data_prep.commands import discourse
from fairseq_memattn.data_prep.generated.discourse.discourse_corpus import Options
from fairseq_memattn.data_prep.generated.numeric.examples import draw_example
from fairseq_memattn.data_prep.generated.stories.story_examples import draw_example as draw_story


def digest(texts: Iterable[str]) -> str:
    """SHA-256 of texts in their order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


DISCOURSE = {  # train, valid, test, groups, shortest, longest, seed, name weight, noun weight
    "60 7 8 36 6 12 1 1 3": "01482e1dfc0c0627d0f9ea305cb4568d7a9abeff9fede3bb4841b49acc1461cf",
    "200 5 5 60 4 20 42 4 1": "e0fdad6d081ab657be1ca377e0c17fedb1ea40b301475a1639f9c5e17c942dde",
    "30 3 3 3 8 8 7 1 1": "5552d3f67607e7a3bddb090b1c724e5266270fc1d588ef3d6debad8319f18179",
}


@pytest.mark.parametrize("options", DISCOURSE)
def test_discourse(options: str) -> None:
    contents = discourse.corpus_files(Options(*map(int, options.split())))
    files = dict(zip(discourse.output_names(), contents[:-1], strict=False))
    assert len(files) == 13
    assert digest(part for item in sorted(files.items()) for part in item) == DISCOURSE[options]


NUMERIC = {  # reuse, largest, sentences
    (0.999, 9999, 5): "a1d144b7da645e69bd1dc0e14070ccbc73cf417f6e3ab2ee327e31ddc43ac48e",
    (0.5, 9, 2): "b07b10439f1a9381cdd0669dfea47a41465aa27ed7253d84b8119979eba3a14c",
    (0.0, 100, 30): "f566d455e7624abec83be4dbabcfda69767c3e2bb868f506f934c822970209e3",
}


@pytest.mark.parametrize("options", NUMERIC)
def test_numeric(options: tuple[float, int, int]) -> None:
    examples = [draw_example(Random(f"1 {n}"), *options, counts=Counter()) for n in range(100)]
    assert digest(text for example in examples for text in example) == NUMERIC[options]


STORIES = {  # sentences, numbers of facts, apart
    (18, (1, 2, 3), 6): "b8b27854718c78848002a65141316c7115af115e4089a0b6e3e6f4b8f09edde6",
    (4, (1,), 0): "d3133435b2ba31af44a4ab0a01b5ae78268f251fa270e4d090c80b7ebe6f2bd7",
    (60, (2, 3), 20): "6912a51aabab9c4e8f211f813786efaca9fabbb0825f18bd1772fa5f8ced02cc",
}


@pytest.mark.parametrize("options", STORIES)
def test_stories(options: tuple[int, tuple[int, ...], int]) -> None:
    sentences, *others = options
    examples = [
        draw_story(Random(f"1 {n}"), range(sentences, sentences + 1), *others, counts=Counter())
        for n in range(60)
    ]
    told = ([one.passage, one.question, one.answer, f"{one.facts}"] for one in examples)
    assert digest(text for texts in told for text in texts) == STORIES[options]
