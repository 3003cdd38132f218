"""The words of the stories, and the templates that they fill."""

from fairseq_memattn.data_prep.text.tables import grouped, read_table

ROWS = grouped(read_table(__package__, "words.tsv"), "kind")
PEOPLE, PLACES, OBJECTS = (
    tuple(row["word"] for row in ROWS[kind]) for kind in ("person", "place", "object")
)
# By kind of event (move, take or drop) or, of questions, by the number of facts.
TEMPLATES = {
    kind: tuple(row["template"] for row in rows)
    for kind, rows in grouped(read_table(__package__, "templates.tsv"), "kind").items()
}


def all_texts() -> list[str]:
    """Texts that together have every word of every story and question."""
    templates = (text for texts in TEMPLATES.values() for text in texts)
    filled = [text.format(person="", what="", place="") for text in templates]
    return [*filled, *PEOPLE, *PLACES, *OBJECTS]
