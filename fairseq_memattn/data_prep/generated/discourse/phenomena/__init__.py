"""The phenomena of Voita et al. (2019), each of which has a contrastive set of its own."""

from fairseq_memattn.data_prep.generated.discourse.phenomena.cohesion import COHESION
from fairseq_memattn.data_prep.generated.discourse.phenomena.deixis import DEIXIS
from fairseq_memattn.data_prep.generated.discourse.phenomena.ellipsis import ELLIPSIS
from fairseq_memattn.data_prep.generated.discourse.phenomena.pronoun import PRONOUN
from fairseq_memattn.data_prep.generated.discourse.stories import Phenomenon

PHENOMENA: dict[str, Phenomenon] = {
    "pronoun": PRONOUN,
    "deixis": DEIXIS,
    "ellipsis": ELLIPSIS,
    "cohesion": COHESION,
}
