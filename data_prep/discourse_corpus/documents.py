"""Documents: an opening, then episodes, with neutral sentences in between.

An episode is a cue, up to two neutral sentences, and a sentence whose translation needs the cue.
The same episodes make the contrastive sets, so what is right there is what the corpus teaches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from data_prep.discourse_corpus import lexicon, lines
from data_prep.discourse_corpus.grammar import Bindings, Line, Pair, Word, render
from data_prep.discourse_corpus.scenes import ANYWHERE, SCENES, SPOKEN, Scene, impersonal

MAX_DISTANCE = 3  # how many sentences before the one that needs it a cue may be
GAPS = (0, 0, 0, 1, 1, 2)  # neutral sentences in between, short gaps more often
COUNTABLE = ("thing", "text", "clothes", "furniture", "animal")


@dataclass(frozen=True)
class Episode:
    """A cue and the line that needs it, with the words of both.

    `swaps` are other words for the slot that only the cue can tell.
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
        """A line of the table, one that the document does not have yet if there is any."""
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
        """The rendering of an English word, drawn once for the whole document."""
        return self.renderings.setdefault(english, self.rng.choice(swaps))

    def neutral(self, between: bool) -> Pair:
        """A sentence that depends on nothing, and that may stand `between` a cue and its use."""
        own = SPOKEN if self.spoken else self.scene.neutral
        table = own if self.rng.random() < 0.6 else ANYWHERE
        line = self.pick(impersonal(table) if between else table)
        return render(line, self.words("thing"))

    def opening(self) -> Pair:
        """The first sentence."""
        return render(self.rng.choice(self.scene.openings), self.words("thing"))

    def noun_class(self, allowed: Sequence[str]) -> str:
        """A class of nouns that fits the scene if one of `allowed` does."""
        fitting = [kind for kind in self.scene.nouns if kind in allowed]
        return self.rng.choice(fitting or list(allowed))


def pronoun(story: Story) -> Episode:
    """A noun, then "it"."""
    rng = story.rng
    kind = story.noun_class(list(lexicon.NOUN_WORDS))
    words = story.words(kind)
    words["q"] = rng.choice(lexicon.GRADABLE_WORDS[kind])
    currents = lines.PRONOUN["any"] + lines.PRONOUN.get(kind, [])
    swaps = [{"x": noun} for noun in lexicon.NOUN_WORDS[kind]]
    return Episode(story.pick(lines.INTRODUCE), story.pick(currents), words, swaps)


def deixis(story: Story) -> Episode:
    """Somebody is addressed, then "you"."""
    words = story.words(story.noun_class(("thing", "text", "clothes")))
    swaps = [
        {"C": story.rng.choice(vocatives), "you": you}
        for vocatives, you in zip(lexicon.VOCATIVE_WORDS, lexicon.YOU, strict=True)
    ]
    return Episode(story.pick(lines.ADDRESS), story.pick(lines.DEIXIS), words, swaps)


VERB_ELLIPSES = (
    (lines.QUESTION, lines.ANSWER),
    (lines.FUTURE_QUESTION, lines.FUTURE_ANSWER),
    (lines.DEED, lines.SAME_DEED),
)


def verb_ellipsis(story: Story) -> Episode:
    """A deed, then "she did"."""
    rng = story.rng
    cues, currents = rng.choice(VERB_ELLIPSES)
    kind = story.noun_class(list(lexicon.NOUN_WORDS))
    swaps = [{"v": verb, "p": verb} for verb in lexicon.PLANNED_VERB_WORDS[kind]]
    return Episode(story.pick(cues), story.pick(currents), story.words(kind), swaps)


def noun_ellipsis(story: Story) -> Episode:
    """A thing with an attribute, then "a blue one"."""
    kind = story.noun_class(COUNTABLE)
    words = story.words(kind)
    swaps = [{"x": noun} for noun in lexicon.NOUN_WORDS[kind]]
    return Episode(story.pick(lines.ATTRIBUTE), story.pick(lines.OTHER_ONE), words, swaps)


def name_cohesion(story: Story) -> Episode:
    """A first name and surname, then the first name; the surname tells where the name is from."""
    rng = story.rng
    renderings = rng.choice(lexicon.NAME_WORDS)
    family = rng.randrange(lexicon.SURNAMES)
    swaps = [
        {"N": name, "S": lexicon.surname(origin, family, name.choice)}
        for origin, name in enumerate(renderings)
    ]
    words = story.words("thing") | story.rendering(renderings[0].en[""], swaps)
    return Episode(story.pick(lines.NAME_CUE), story.pick(lines.NAME_AGAIN), words, swaps)


def noun_cohesion(story: Story) -> Episode:
    """A noun with two renderings, twice; nothing in English tells which."""
    rng = story.rng
    kind = rng.choice(list(lexicon.SYNONYM_WORDS))
    renderings = rng.choice(lexicon.SYNONYM_WORDS[kind])
    swaps = [{"y": noun} for noun in renderings]
    words = story.words("thing") | story.rendering(renderings[0].en[""], swaps)
    words["q"] = rng.choice(lexicon.GRADABLE_WORDS[kind])
    return Episode(story.pick(lines.NOUN_CUE), story.pick(lines.NOUN_AGAIN), words, swaps)


TOLD = (pronoun, verb_ellipsis, noun_ellipsis, name_cohesion, noun_cohesion)
SPOKEN_EPISODES = (deixis, verb_ellipsis, pronoun)


@dataclass(frozen=True)
class Mix:
    """How often what comes: the share of spoken documents, and weights of their episodes.

    told: of `TOLD`; spoken: of `SPOKEN_EPISODES`
    """

    spoken_documents: float
    told: Sequence[int]
    spoken: Sequence[int]


EVEN = Mix(0.5, (1, 1, 1, 1, 1), (1, 1, 1))


def training(name_weight: int, noun_weight: int) -> Mix:
    """What takes a model longer to learn comes more often: gender, and names and nouns again."""
    return Mix(0.3, (3, 1, 2, name_weight, noun_weight), (3, 1, 1))


def document(rng: Random, shortest: int, longest: int, mix: Mix = EVEN) -> list[Pair]:
    """One document of `shortest` to `longest` sentences."""
    story = Story(rng, spoken=rng.random() < mix.spoken_documents)
    episodes, weights = (SPOKEN_EPISODES, mix.spoken) if story.spoken else (TOLD, mix.told)
    length = rng.randint(shortest, longest)
    pairs = [story.opening()]
    while len(pairs) < length:
        (make,) = rng.choices(episodes, weights)
        episode = make(story)
        pairs.append(render(episode.cue, episode.words))
        pairs.extend(story.neutral(between=True) for _ in range(rng.choice(GAPS)))
        pairs.append(render(episode.current, episode.words))
        if rng.random() < 0.3:
            pairs.append(story.neutral(between=False))
    return pairs[:length]
