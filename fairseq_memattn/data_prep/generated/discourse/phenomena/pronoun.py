"""Pronouns: the gender of "it" is that of a Russian noun in an earlier sentence."""

from fairseq_memattn.data_prep.generated.discourse import lexicon
from fairseq_memattn.data_prep.generated.discourse.stories import Episode, Phenomenon, Story
from fairseq_memattn.data_prep.generated.discourse.templates import read_templates

TEMPLATES = read_templates("pronoun")


def pronoun(story: Story) -> Episode:
    """A noun, then "it"."""
    kind = story.noun_class(list(lexicon.NOUN_WORDS))
    words = story.words(kind)
    words["q"] = story.rng.choice(lexicon.GRADABLE_WORDS[kind])
    currents = TEMPLATES["any"] + TEMPLATES.get(kind, [])
    swaps = [{"x": noun} for noun in lexicon.NOUN_WORDS[kind]]
    return Episode(story.pick(TEMPLATES["introduction"]), story.pick(currents), words, swaps)


PRONOUN = Phenomenon((pronoun,))
