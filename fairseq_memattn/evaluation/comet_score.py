"""COMET (Rei et al., 2020), computed by the optional package unbabel-comet.

Document COMET (Vernikos et al., 2022, "Embarrassingly Easy Document-Level MT Metrics") encodes a
sentence after the sentences before it, and averages the embeddings of its own tokens alone.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.document_lines import Document, with_context

SPECIAL_TOKENS = 2  # for which COMET leaves room in the positions of its encoder


class Texts(NamedTuple):
    """Line-aligned sentences, or blocks of sentences."""

    sources: Sequence[str]
    hypotheses: Sequence[str]
    references: Sequence[str]


class Comet(NamedTuple):
    """A loaded model, and the signature that names it and the version of the package."""

    scorer: Any
    signature: str


def import_comet() -> ModuleType:
    """Imports the package. Raises ImportError, which names --comet, if it is not installed."""
    try:
        import comet
    except ImportError as error:
        raise ImportError(
            f"--comet needs the package unbabel-comet (`pip install unbabel-comet`): {error}"
        ) from None
    return comet


def load_comet(model: str) -> Comet:
    """Loads a checkpoint file, or a name that COMET downloads, such as Unbabel/wmt22-comet-da.

    Raises ValueError if the model cannot be downloaded or loaded.
    """
    comet = import_comet()
    try:
        checkpoint = model if Path(model).is_file() else comet.download_model(model)
        scorer = comet.load_from_checkpoint(checkpoint)
    except Exception as error:  # COMET has no error of its own for a wrong name or file
        raise ValueError(f"--comet {model} cannot be loaded: {error}") from error
    return Comet(scorer, f"model:{model}|version:{comet.__version__}")


def load_context_comet(model: str) -> Comet:
    """Loads a model as `load_comet`, and makes it average over the last sentence of each text.

    Raises ValueError if unbabel-comet cannot do so, which it can from 2.2.3 for regression models
    with average pooling.
    """
    loaded = load_comet(model)
    # unbabel-comet's own method does nothing, or only logs, for models that cannot use context.
    if hasattr(loaded.scorer, "enable_context"):
        loaded.scorer.enable_context()
    if not getattr(loaded.scorer, "use_context", False):
        raise ValueError(
            f"--comet-context: --comet {model} cannot use context; unbabel-comet 2.2.3 and later "
            "support it for regression models with average pooling, such as "
            "Unbabel/wmt22-comet-da"
        )
    return loaded


def comet_scores(comet: Comet, texts: Texts) -> list[float]:
    """A score for each text. The model runs on a GPU if there is one."""
    import torch  # a requirement of unbabel-comet

    data = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(*texts, strict=True)
    ]
    found = comet.scorer.predict(data, gpus=int(torch.cuda.is_available())).scores
    return [float(score) for score in found]


def texts_with_context(
    comet: Comet, texts: Texts, documents: Sequence[Document], size: int
) -> Texts:
    """Each sentence after up to `size` sentences before it, with the encoder's separator between.

    As in Vernikos et al., the context of a hypothesis consists of references; for a model without
    references it consists of the hypotheses before it.
    """
    separator = comet.scorer.encoder.tokenizer.sep_token
    before = texts.references if comet.scorer.requires_references() else texts.hypotheses
    contexts = Texts(texts.sources, before, texts.references)
    return Texts(
        *(
            with_context(lines, context, documents, size, separator)
            for lines, context in zip(texts, contexts, strict=True)
        )
    )


def warn_of_cut_texts(comet: Comet, texts: Iterable[Texts], measure: str) -> None:
    """Prints how many texts are longer than the model's input. COMET drops the end of them."""
    encoder = comet.scorer.encoder
    limit = encoder.max_positions - SPECIAL_TOKENS
    lines = sorted({line for columns in texts for column in columns for line in column})
    # Without verbose=False, transformers warns of each long text itself.
    lengths = map(len, encoder.tokenizer(lines, verbose=False)["input_ids"])
    longer = sum(length > limit for length in lengths)
    if longer:
        print(
            f"warning: {measure}: {longer} of {len(lines)} different inputs have more than the "
            f"{limit} tokens that the model reads; COMET cuts off their end, so the score is of "
            "little meaning",
            file=sys.stderr,
        )
