"""Deixis: "you" is ты or вы, which an earlier form of address determines."""

from fairseq_memattn.data_prep.generated.discourse import lexicon
from fairseq_memattn.data_prep.generated.discourse.stories import Episode, Phenomenon, Story
from fairseq_memattn.data_prep.generated.discourse.templates import read_templates

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
