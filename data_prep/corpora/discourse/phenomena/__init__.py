"""The phenomena of Voita et al. (2019), each of which has a contrastive set of its own."""

from data_prep.corpora.discourse.phenomena.cohesion import COHESION
from data_prep.corpora.discourse.phenomena.deixis import DEIXIS
from data_prep.corpora.discourse.phenomena.ellipsis import ELLIPSIS
from data_prep.corpora.discourse.phenomena.pronoun import PRONOUN
from data_prep.corpora.discourse.stories import Phenomenon

PHENOMENA: dict[str, Phenomenon] = {
    "pronoun": PRONOUN,
    "deixis": DEIXIS,
    "ellipsis": ELLIPSIS,
    "cohesion": COHESION,
}
