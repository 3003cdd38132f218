"""fairseq-hydra-train, which reads its configuration before it imports `common.user_dir`."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.messages.handler import install_excepthook


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
    """`hydra_train._hydra_main`, which imports `common.user_dir` before it starts the training.

    fairseq imports it within the training, after the place where the configuration is checked.
    """
    from fairseq.utils import import_user_module

    import_user_module(cfg.common)
    return main(cfg, **kwargs)


def check_config_file(argv: list[str]) -> None:
    """Raises MemAttnError for a --config-name that --config-dir does not have.

    fairseq would train with the defaults of all options.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--config-name", "-cn")
    given, _ = parser.parse_known_args(argv)
    if given.config_name and given.config_dir and os.path.isdir(given.config_dir):
        file = Path(given.config_dir, f"{given.config_name.removesuffix('.yaml')}.yaml")
        if not file.is_file():
            raise MemAttnError(f"--config-name {given.config_name}: {file} does not exist")
