"""The scripts of recipes/ as modules."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

RECIPES = Path(__file__).parents[2] / "recipes"


def load(path: str) -> ModuleType:
    """path: of the script in recipes/"""
    script = RECIPES / path
    spec = spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
