"""The sentence templates, in the tables of templates/.

Slots: A, B people; x a noun; v, w verbs, p a verb that can be planned; q, r adjectives; t a past
time, f a future one; y a noun and N a first name with two translations; S a surname; C a form of
address; you the second person. `grammar.fill` describes the forms of a slot.
"""

from fairseq_memattn.data_prep.generated.discourse.grammar import Line
from fairseq_memattn.data_prep.text.tables import grouped, read_table


def read_templates(name: str) -> dict[str, list[Line]]:
    """The templates of templates/NAME.tsv by the name of their table."""
    rows = read_table(__package__, f"templates/{name}.tsv")
    return {
        table: [Line(row["english"], row["russian"]) for row in group]
        for table, group in grouped(rows, "table").items()
    }
