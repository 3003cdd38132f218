"""fairseq-hydra-train, which reads its configuration before it imports `common.user_dir`."""

import argparse
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.messages.handler import install_excepthook

MOST = 100_000  # values of a configuration


def prepare_hydra_train() -> None:
    """Lets fairseq-hydra-train check its configuration, and end on an error with one sentence.

    hydra prints errors itself, with frames of the traceback, unless HYDRA_FULL_ERROR is set.
    """
    from fairseq_memattn.host.patches import HYDRA_TRAIN, replace

    if Path(sys.argv[0] if sys.argv else "").name != "fairseq-hydra-train":
        return
    replace(HYDRA_TRAIN)
    if "HYDRA_FULL_ERROR" not in os.environ:
        os.environ["HYDRA_FULL_ERROR"] = "1"
        install_excepthook()
        check_config_file(sys.argv[1:])


def import_user_dir(main: Callable[..., Any], cfg: Any, **kwargs: Any) -> Any:
    """`common.user_dir` is imported before the configuration is checked.

    fairseq imports it within the training, after that.
    """
    from fairseq.utils import import_user_module

    import_user_module(cfg.common)
    return main(cfg, **kwargs)


def check_config_file(argv: list[str]) -> None:
    """Raises MemAttnError for a --config-name that --config-dir does not have, and for aliases.

    fairseq would train with the defaults of all options. Aliases that expand to more than `MOST`
    values would take all memory, without end.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--config-name", "-cn")
    given, _ = parser.parse_known_args(argv)
    if given.config_name and given.config_dir and os.path.isdir(given.config_dir):
        file = Path(given.config_dir, f"{given.config_name.removesuffix('.yaml')}.yaml")
        if not file.is_file():
            raise MemAttnError(f"--config-name {given.config_name}: {file} does not exist")
        if _expanded(file) > MOST:
            raise MemAttnError(f"{file}: its aliases expand to more than {MOST:,} values")


def _expanded(file: Path) -> float:
    """The number of values in a YAML file with its aliases expanded; 0 for what is not YAML."""
    import yaml

    sizes: dict[int, float] = {}

    def size(node: yaml.Node) -> float:
        if id(node) not in sizes:
            sizes[id(node)] = math.inf  # of an alias within itself
            inner = node.value if isinstance(node, yaml.CollectionNode) else []
            pairs = isinstance(node, yaml.MappingNode)
            inner = [one for pair in inner for one in pair] if pairs else inner
            sizes[id(node)] = 1 + sum(map(size, inner))
        return sizes[id(node)]

    try:
        return size(yaml.compose(file.read_bytes(), Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return 0  # hydra tells
