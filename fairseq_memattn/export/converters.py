"""Which function makes a model of transformers of which model of fairseq."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel

import fairseq_memattn.export
from fairseq_memattn.errors import MemAttnError

# From (model of fairseq, its task) to the same model of transformers, in evaluation mode. It copies
# the weights as they are: `way_back` finds each of them again, and a model with a weight that is
# transposed, joined or scaled cannot be imported from the folder.
Converter = Callable[[Any, Any], PreTrainedModel]
CONVERTERS: dict[type, Converter] = {}


def converts(*classes: type) -> Callable[[Converter], Converter]:
    """A decorator that registers the converter of classes of models, and of their subclasses."""

    def add(converter: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(classes, converter))
        return converter

    return add


def import_converters() -> None:
    """Imports the modules of this package, whose converters register themselves."""
    for module in pkgutil.iter_modules(fairseq_memattn.export.__path__):
        importlib.import_module(f"{fairseq_memattn.export.__name__}.{module.name}")


def converted(model: Any, task: Any) -> PreTrainedModel:
    """The model of transformers with the configuration and the weights of a model of fairseq.

    Raises MemAttnError for a model that has no counterpart.
    """
    for cls in type(model).__mro__:
        if cls in CONVERTERS:
            return CONVERTERS[cls](model, task).eval()
    names = ", ".join(sorted(cls.__name__ for cls in CONVERTERS))
    raise MemAttnError(
        f"a {type(model).__name__} cannot be exported: the models that can be are {names}, and "
        "those that derive from them"
    )
