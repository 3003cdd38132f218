"""GenPro (Post and Junczys-Dowmunt, 2023): the pronouns of ContraPro in translations.

"Escaping the sentence-level paradigm in machine translation", https://arxiv.org/abs/2304.12959,
with the script https://github.com/mjpost/ContraPro
"""

from pathlib import Path

from fairseq_memattn.evaluation.contrastive import Group
from fairseq_memattn.evaluation.contrastive_sets import contrapro
from fairseq_memattn.evaluation.generative import Example


def read_genpro(folder: Path, language: str | None = None) -> list[Example]:
    """The examples of a folder that `read_contrapro` reads, one for each group.

    The source of an example has the context sentences of its group. Distances beyond `MAX_DISTANCE`
    are one part, as in the evaluation of ContraPro. language: as in `read_contrapro`

    Raises ValueError as `read_contrapro`, for another folder, and for a group whose pronoun is not
    known.
    """
    if not contrapro.is_contrapro(folder):
        raise ValueError(
            f"{folder} must be a folder with NAME.text.LANG or NAME.current.LANG, the layout of "
            "ContraPro, or a JSON file of ctxpro"
        )
    groups = contrapro.read_contrapro(folder, language=language)
    return [_example(folder, number, group) for number, group in enumerate(groups, start=1)]


def _example(folder: Path, number: int, group: Group) -> Example:
    if group.pronoun is None:
        raise ValueError(
            f"{folder}, group {number}: the pronoun is not known; the folder must have the JSON of "
            "the set"
        )
    distance: int | str | None = group.distance
    if group.distance is not None and group.distance > contrapro.MAX_DISTANCE:
        distance = f">{contrapro.MAX_DISTANCE}"
    return Example(
        group.pronoun,
        group.phenomenon,
        "pronoun",
        pronoun=group.pronoun,
        distance=distance,
        source=group.source,
    )
