"""Lexical cohesion: a name or a noun with two translations keeps the first one."""

from fairseq_memattn.data_prep.generated.discourse import lexicon
from fairseq_memattn.data_prep.generated.discourse.stories import Episode, Phenomenon, Story
from fairseq_memattn.data_prep.generated.discourse.templates import read_templates

TEMPLATES = read_templates("cohesion")


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
    cue, current = (story.pick(TEMPLATES[table]) for table in ("full name", "first name"))
    return Episode(cue, current, words, swaps)


def noun_cohesion(story: Story) -> Episode:
    """A noun with two translations, twice; the English text does not determine which."""
    rng = story.rng
    kind = rng.choice(list(lexicon.SYNONYM_WORDS))
    renderings = rng.choice(lexicon.SYNONYM_WORDS[kind])
    swaps = [{"y": noun} for noun in renderings]
    words = story.words("thing") | story.rendering(renderings[0].en[""], swaps)
    words["q"] = rng.choice(lexicon.GRADABLE_WORDS[kind])
    cue, current = (story.pick(TEMPLATES[table]) for table in ("noun", "noun again"))
    return Episode(cue, current, words, swaps)


COHESION = Phenomenon((name_cohesion, noun_cohesion))
