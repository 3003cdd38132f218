"""Deixis: "you" is ты or вы, which an earlier form of address determines."""

from data_prep.corpora.discourse import lexicon
from data_prep.corpora.discourse.stories import Episode, Phenomenon, Story
from data_prep.corpora.discourse.templates import read_templates

TEMPLATES = read_templates("deixis")
POSSESSIONS = ("thing", "text", "clothes")


def deixis(story: Story) -> Episode:
    """A person is addressed, then "you"."""
    words = story.words(story.noun_class(POSSESSIONS))
    swaps = [
        {"C": story.rng.choice(vocatives), "you": you}
        for vocatives, you in zip(lexicon.VOCATIVE_WORDS, lexicon.YOU, strict=True)
    ]
    cue, current = (story.pick(TEMPLATES[table]) for table in ("address", "second person"))
    return Episode(cue, current, words, swaps)


DEIXIS = Phenomenon((deixis,), spoken=True)
