"""The words of the passages, and the templates that they fill."""

from typing import NamedTuple

from fairseq_memattn.data_prep.text.tables import grouped, read_table


class Verb(NamedTuple):
    """A verb of one kind: what its subject does to a number of people.

    kind: have, gain, lose, take (from another) or give (to another)
    """

    kind: str
    past: str
    base: str


VERB_KINDS = ("have", "gain", "lose", "take", "give")
ROWS = grouped(read_table(__package__, "words.tsv"), "kind")
AGENTS, NOUNS, ATTRIBUTES, PLACES = (
    [row["word"] for row in ROWS[kind]] for kind in ("agent", "noun", "attribute", "place")
)
VERBS = tuple(Verb(kind, row["word"], row["base"]) for kind in VERB_KINDS for row in ROWS[kind])
TEMPLATES = {row["name"]: row["template"] for row in read_table(__package__, "templates.tsv")}


def fill(name: str, **words: object) -> str:
    """A template of templates.tsv with words in its places."""
    return TEMPLATES[name].format(**words)
