"""COMET (Rei et al., 2020), computed by the optional package unbabel-comet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType


def import_comet() -> ModuleType:
    """Imports the package. Raises ImportError, which names --comet, if it is not installed."""
    try:
        import comet
    except ImportError as error:
        raise ImportError(
            f"--comet needs the package unbabel-comet (`pip install unbabel-comet`): {error}"
        ) from None
    return comet


def comet_scores(
    model: str,
    systems: Mapping[str, Sequence[str]],
    sources: Sequence[str],
    references: Sequence[str],
) -> tuple[str, dict[str, float]]:
    """Returns a signature and the score of each system, which is the mean over its sentences.

    model: a checkpoint file, or a name that COMET downloads, such as Unbabel/wmt22-comet-da
    systems: the hypotheses of each system; sources, references: as many sentences

    The model runs on a GPU if there is one.

    Raises ValueError if the model cannot be downloaded or loaded.
    """
    comet = import_comet()
    import torch  # a requirement of unbabel-comet

    try:
        checkpoint = model if Path(model).is_file() else comet.download_model(model)
        scorer = comet.load_from_checkpoint(checkpoint)
    except Exception as error:  # COMET has no error of its own for a wrong name or file
        raise ValueError(f"--comet {model} cannot be loaded: {error}") from error
    scores = {}
    for name, hypotheses in systems.items():
        data = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
        ]
        prediction = scorer.predict(data, gpus=int(torch.cuda.is_available()))
        scores[name] = float(prediction.system_score)
    return f"model:{model}|version:{comet.__version__}", scores
