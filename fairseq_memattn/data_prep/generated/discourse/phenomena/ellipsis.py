"""Ellipsis: English leaves out a verb or a noun that Russian repeats or agrees with."""

from fairseq_memattn.data_prep.generated.discourse import lexicon
from fairseq_memattn.data_prep.generated.discourse.stories import Episode, Phenomenon, Story
from fairseq_memattn.data_prep.generated.discourse.templates import read_templates

TEMPLATES = read_templates("ellipsis")
VERB_ELLIPSES = (
    ("question", "answer"),
    ("future question", "future answer"),
    ("deed", "same deed"),
)
COUNTABLE = ("thing", "text", "clothes", "furniture", "animal")


def verb_ellipsis(story: Story) -> Episode:
    """A deed, then "she did"."""
    cue, current = story.rng.choice(VERB_ELLIPSES)
    kind = story.noun_class(list(lexicon.NOUN_WORDS))
    swaps = [{"v": verb, "p": verb} for verb in lexicon.PLANNED_VERB_WORDS[kind]]
    lines = story.pick(TEMPLATES[cue]), story.pick(TEMPLATES[current])
    return Episode(*lines, story.words(kind), swaps)


def noun_ellipsis(story: Story) -> Episode:
    """A thing with an attribute, then "a blue one"."""
    kind = story.noun_class(COUNTABLE)
    words = story.words(kind)
    swaps = [{"x": noun} for noun in lexicon.NOUN_WORDS[kind]]
    cue, current = (story.pick(TEMPLATES[table]) for table in ("attribute", "other one"))
    return Episode(cue, current, words, swaps)


ELLIPSIS = Phenomenon((verb_ellipsis, noun_ellipsis))
