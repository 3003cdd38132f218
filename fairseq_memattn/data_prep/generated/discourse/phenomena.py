"""The phenomena of Voita et al. (2019), each of which has a contrastive set of its own."""

from fairseq_memattn.data_prep.generated.discourse import lexicon
from fairseq_memattn.data_prep.generated.discourse.stories import (
    Episode,
    Phenomenon,
    Story,
    read_templates,
)

PRONOUN = read_templates("pronoun")
DEIXIS = read_templates("deixis")
POSSESSIONS = ("thing", "text", "clothes")
ELLIPSIS = read_templates("ellipsis")
VERB_ELLIPSES = (
    ("question", "answer"),
    ("future question", "future answer"),
    ("deed", "same deed"),
)
COUNTABLE = ("thing", "text", "clothes", "furniture", "animal")
COHESION = read_templates("cohesion")


def pronoun(story: Story) -> Episode:
    """A noun, then "it", whose gender is that of the noun in Russian."""
    kind = story.noun_class(list(lexicon.NOUN_WORDS))
    words = story.words(kind)
    words["q"] = story.rng.choice(lexicon.GRADABLE_WORDS[kind])
    currents = PRONOUN["any"] + PRONOUN.get(kind, [])
    swaps = [{"x": noun} for noun in lexicon.NOUN_WORDS[kind]]
    return Episode(story.pick(PRONOUN["introduction"]), story.pick(currents), words, swaps)


def deixis(story: Story) -> Episode:
    """A form of address, then "you", which it makes ты or вы."""
    words = story.words(story.noun_class(POSSESSIONS))
    swaps = [
        {"C": story.rng.choice(vocatives), "you": you}
        for vocatives, you in zip(lexicon.VOCATIVE_WORDS, lexicon.YOU, strict=True)
    ]
    cue, current = (story.pick(DEIXIS[table]) for table in ("address", "second person"))
    return Episode(cue, current, words, swaps)


def verb_ellipsis(story: Story) -> Episode:
    """A deed, then "she did", where Russian repeats the verb."""
    cue, current = story.rng.choice(VERB_ELLIPSES)
    kind = story.noun_class(list(lexicon.NOUN_WORDS))
    swaps = [{"v": verb, "p": verb} for verb in lexicon.PLANNED_VERB_WORDS[kind]]
    lines = story.pick(ELLIPSIS[cue]), story.pick(ELLIPSIS[current])
    return Episode(*lines, story.words(kind), swaps)


def noun_ellipsis(story: Story) -> Episode:
    """A thing with an attribute, then "a blue one", which agrees with the noun in Russian."""
    kind = story.noun_class(COUNTABLE)
    words = story.words(kind)
    swaps = [{"x": noun} for noun in lexicon.NOUN_WORDS[kind]]
    cue, current = (story.pick(ELLIPSIS[table]) for table in ("attribute", "other one"))
    return Episode(cue, current, words, swaps)


def name_cohesion(story: Story) -> Episode:
    """A first name with a surname, then the first name; the surname determines the translation."""
    rng = story.rng
    renderings = rng.choice(lexicon.NAME_WORDS)
    family = rng.randrange(lexicon.SURNAMES)
    swaps = [
        {"N": name, "S": lexicon.surname(origin, family, name.choice)}
        for origin, name in enumerate(renderings)
    ]
    words = story.words("thing") | story.rendering(renderings[0].en[""], swaps)
    cue, current = (story.pick(COHESION[table]) for table in ("full name", "first name"))
    return Episode(cue, current, words, swaps)


def noun_cohesion(story: Story) -> Episode:
    """A noun with two translations, twice; the English text does not determine which."""
    rng = story.rng
    kind = rng.choice(list(lexicon.SYNONYM_WORDS))
    renderings = rng.choice(lexicon.SYNONYM_WORDS[kind])
    swaps = [{"y": noun} for noun in renderings]
    words = story.words("thing") | story.rendering(renderings[0].en[""], swaps)
    words["q"] = rng.choice(lexicon.GRADABLE_WORDS[kind])
    cue, current = (story.pick(COHESION[table]) for table in ("noun", "noun again"))
    return Episode(cue, current, words, swaps)


PHENOMENA = {
    "pronoun": Phenomenon((pronoun,)),
    "deixis": Phenomenon((deixis,), spoken=True),
    "ellipsis": Phenomenon((verb_ellipsis, noun_ellipsis)),
    "cohesion": Phenomenon((name_cohesion, noun_cohesion)),
}
