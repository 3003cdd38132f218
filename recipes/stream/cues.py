"""A translation corpus of a toy language, small enough to train a model of it in a minute of CPU.

    python recipes/stream/cues.py OUT --seed 1 --trained 1 2 3 --tested 1 3 10 30 100

A word has one translation, but for three, which a cue in an earlier sentence decides:

    deixis     `you`, by the form of address, one of two for the whole document
    pronoun    `it`, by the gender of the noun named last, one of NOUNS
    cohesion   one of TWOFOLD words with two translations, by the mark beside its first occurrence

Between a cue and its use are neutral sentences. Writes OUT/{train,valid,test,book}.{en,ru,docid},
whose distances from cue to use are --trained, and OUT/contrast/*.json in the format of Voita et al.
(2019), whose distances are --tested: a context of two sentences, the cue, neutral sentences, and a
use with the two translations that the two cues decide between.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from fairseq_memattn.files import write_text

SEPARATOR = " _eos "
NEUTRAL = [a + b for a, b in itertools.product("bdfg", "aeiou")]
NOUNS, GENDERS = [a + b for a, b in itertools.product("lmn", "aeiou")], ("on", "ona", "ono")
TWOFOLD = [a + b for a, b in itertools.product("rs", "aei")]
ADDRESSES, YOU = ("sir", "pal"), ("vy", "ty")
MARKS = ("xu", "yu")
PHENOMENA = ("deixis", "pronoun", "cohesion")
Sentence = list[tuple[str, str]]  # words with their translations


def capital(word: str) -> tuple[str, str]:
    return word, word.upper()


def neutral(rng: Random) -> Sentence:
    return [capital(word) for word in rng.choices(NEUTRAL, k=rng.randint(2, 4))]


def among(rng: Random, *words: tuple[str, str]) -> Sentence:
    """The words, adjacent, somewhere in a neutral sentence."""
    sentence = neutral(rng)
    at = rng.randint(0, len(sentence))
    return [*sentence[:at], *words, *sentence[at:]]


def episode(rng: Random, phenomenon: str, address: int) -> list[tuple[Sentence, Sentence]]:
    """Two cues, each with its use; the sources of the uses are the same, their translations not."""
    cues, uses, around = [], [], neutral(rng)
    two = [address, 1 - address]
    word = rng.choice(TWOFOLD)
    if phenomenon == "pronoun":
        two = rng.sample(range(len(NOUNS)), 2)
        while two[0] % 3 == two[1] % 3:
            two = rng.sample(range(len(NOUNS)), 2)
    for one in two:
        if phenomenon == "deixis":
            cues.append(among(rng, capital(ADDRESSES[one])))
            uses.append([*around, ("you", YOU[one])])
        elif phenomenon == "pronoun":
            cues.append(among(rng, capital(NOUNS[one])))
            uses.append([*around, ("it", GENDERS[one % 3])])
        else:
            rendered = word, word.upper() + MARKS[one].upper()
            cues.append(among(rng, rendered, capital(MARKS[one])))
            uses.append([*around, rendered])
    return list(zip(cues, uses, strict=True))


def document(rng: Random, distances: list[int], least: int = 8) -> list[Sentence]:
    found, address = [neutral(rng)], rng.randrange(2)
    while len(found) < least:
        cue, use = episode(rng, rng.choice(PHENOMENA), address)[0]
        between = rng.choice(distances) - 1
        found += [cue, *(neutral(rng) for _ in range(between)), use]
    return found


def groups(rng: Random, phenomenon: str, distance: int) -> Iterator[dict[str, object]]:
    pair = episode(rng, phenomenon, rng.randrange(2))
    before = [neutral(rng) for _ in range(2)]
    between = [neutral(rng) for _ in range(distance - 1)]
    for right, (cue, use) in enumerate(pair):
        context = [*before, cue, *between]
        yield {
            "src": SEPARATOR.join(text(s, 0) for s in [*context, use]),
            "dst": [SEPARATOR.join(text(s, 1) for s in [*context, u]) for _, u in pair],
            "true_ind": right,
            "ctx_dist": distance,
        }


def text(sentence: Sentence, side: int) -> str:
    return " ".join(pair[side] for pair in sentence)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("output", type=Path)
    add("--seed", type=int, default=1)
    add("--train-docs", type=int, default=4000)
    add("--book", type=int, default=0, help="sentences of OUT/book, a document alone")
    add("--sets", type=int, default=25, help="of two groups, for each phenomenon and distance")
    add("--trained", type=int, nargs="+", default=[1, 2, 3])
    add("--tested", type=int, nargs="+", default=[1, 3, 10, 30, 100])
    args = parser.parse_args()
    (args.output / "contrast").mkdir(parents=True, exist_ok=True)
    sizes = {
        "train": (args.train_docs, 8),
        "valid": (20, 8),
        "test": (20, 8),
        "book": (1, args.book),
    }
    for split, (count, least) in sizes.items():
        rng = Random(f"{args.seed} {split}")
        documents = [document(rng, args.trained, least) for _ in range(count)]
        lines = [(text(s, 0), text(s, 1), str(i)) for i, d in enumerate(documents, 1) for s in d]
        for suffix, column in zip(("en", "ru", "docid"), zip(*lines, strict=True), strict=True):
            write_text(args.output / f"{split}.{suffix}", "".join(f"{line}\n" for line in column))
    for phenomenon in PHENOMENA:
        rng = Random(f"{args.seed} {phenomenon}")
        found = [
            g for d in args.tested for _ in range(args.sets) for g in groups(rng, phenomenon, d)
        ]
        write_text(args.output / "contrast" / f"{phenomenon}.json", json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
