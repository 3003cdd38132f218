"""Where a document takes place: its opening, and sentences that depend on no earlier sentence.

Neutral sentences contain neither "it" for a thing nor "you". Those without a person (`impersonal`)
may stand between a cue and the sentence that needs it: nobody does anything in them that "she
did" could refer to.
"""

from dataclasses import dataclass

from fairseq_memattn.data_prep.generated.discourse.grammar import Line
from fairseq_memattn.data_prep.generated.discourse.templates import read_templates
from fairseq_memattn.data_prep.text.tables import read_table


def impersonal(table: list[Line]) -> list[Line]:
    """The lines of a table that name no person."""
    return [line for line in table if "{A" not in line.en and "{B" not in line.en]


@dataclass(frozen=True)
class Scene:
    """Openings, neutral sentences, and the classes of nouns that belong to a place."""

    openings: list[Line]
    neutral: list[Line]
    nouns: tuple[str, ...]


OPENINGS = read_templates("openings")
NEUTRAL = read_templates("neutral")
SCENES = [
    Scene(OPENINGS[row["scene"]], NEUTRAL[row["scene"]], tuple(row["noun classes"].split()))
    for row in read_table(__package__, "words/scenes.tsv")
]
ANYWHERE = NEUTRAL["anywhere"]  # in stories
SPOKEN = NEUTRAL["spoken"]  # in conversations
