"""A document's scene, people and choices of words, and the episodes of which it consists.

Slots of the templates: A, B people; x a noun; v, w verbs, p a verb that can be planned; q, r
adjectives; t a past time, f a future one; y a noun and N a first name with two translations; S a
surname; C a form of address; you the second person. `grammar.fill` describes the forms of a slot.

Neutral sentences depend on no earlier sentence, and contain neither "it" for a thing nor "you".
Those without a person (`impersonal`) may stand between a cue and the sentence that needs it: nobody
does anything in them that "she did" could refer to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from fairseq_memattn.data_prep.generated.discourse import lexicon
from fairseq_memattn.data_prep.generated.discourse.grammar import Bindings, Line, Pair, Word, render
from fairseq_memattn.data_prep.text.tables import grouped, read_table

OWN_NEUTRAL = 0.6  # share of neutral sentences that belong to the scene


def read_templates(name: str) -> dict[str, list[Line]]:
    """The templates of templates/NAME.tsv by the name of their table."""
    rows = read_table(__package__, f"templates/{name}.tsv")
    return {
        table: [Line(row["english"], row["russian"]) for row in group]
        for table, group in grouped(rows, "table").items()
    }


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


@dataclass(frozen=True)
class Episode:
    """A cue and a current line that needs it, with the words of both.

    swaps: other words for the slot that only the cue determines
    """

    cue: Line
    current: Line
    words: Bindings
    swaps: list[dict[str, Word]]


class Story:
    """What stays the same through one document: its scene, people and choices of words."""

    def __init__(self, rng: Random, spoken: bool) -> None:
        self.rng = rng
        self.spoken = spoken
        self.scene: Scene = rng.choice(SCENES)
        self.a, self.b = rng.sample(lexicon.PEOPLE_WORDS, 2)
        self.formal = rng.randrange(2)
        self.address = rng.choice(lexicon.VOCATIVE_WORDS[self.formal])
        self.renderings: dict[str, dict[str, Word]] = {}
        self.told: list[Line] = []

    def pick(self, table: Sequence[Line]) -> Line:
        """A line of the table, one that the document does not contain yet if there is any."""
        line = self.rng.choice([line for line in table if line not in self.told] or table)
        self.told.append(line)
        return line

    def words(self, kind: str) -> dict[str, Word]:
        """Words for every slot that a line with nouns of class `kind` may have."""
        rng = self.rng
        q, r = rng.sample(lexicon.ADJECTIVE_WORDS[kind], 2)
        return {
            "A": self.a,
            "B": self.b,
            "C": self.address,
            "you": lexicon.YOU[self.formal],
            "x": rng.choice(lexicon.NOUN_WORDS[kind]),
            "v": rng.choice(lexicon.VERB_WORDS[kind]),
            "w": rng.choice(lexicon.VERB_WORDS[kind]),
            "p": rng.choice(lexicon.PLANNED_VERB_WORDS[kind]),
            "q": q,
            "r": r,
            "t": rng.choice(lexicon.PAST_WORDS),
            "f": rng.choice(lexicon.FUTURE_WORDS),
        }

    def rendering(self, english: str, swaps: list[dict[str, Word]]) -> dict[str, Word]:
        """The translation of an English word, drawn once for the whole document."""
        return self.renderings.setdefault(english, self.rng.choice(swaps))

    def neutral(self, between: bool) -> Pair:
        """A sentence that depends on no other; `between` a cue and its use it names no person."""
        own = SPOKEN if self.spoken else self.scene.neutral
        table = own if self.rng.random() < OWN_NEUTRAL else ANYWHERE
        line = self.pick(impersonal(table) if between else table)
        return render(line, self.words("thing"))

    def opening(self) -> Pair:
        """The first sentence."""
        return render(self.rng.choice(self.scene.openings), self.words("thing"))

    def noun_class(self, allowed: Sequence[str]) -> str:
        """A class of nouns: of those allowed one that belongs to the scene, if there is any."""
        fitting = [kind for kind in self.scene.nouns if kind in allowed]
        return self.rng.choice(fitting or list(allowed))


@dataclass(frozen=True)
class Phenomenon:
    """A kind of dependence on context.

    episodes: what makes an episode of it for a story
    spoken: whether its contrastive sets are conversations
    """

    episodes: tuple[Callable[[Story], Episode], ...]
    spoken: bool = False
