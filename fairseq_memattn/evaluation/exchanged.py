"""The former name of `fairseq_memattn.evaluation.swapped_groups`. Version 2.0 removes it."""

import warnings

from fairseq_memattn.evaluation.swapped_groups import Handled, exchanged, handle_exchanged

__all__ = ["Handled", "exchanged", "handle_exchanged"]

warnings.warn(
    f"{__name__} is now fairseq_memattn.evaluation.swapped_groups, and version 2.0 removes it",
    DeprecationWarning,
    stacklevel=2,
)
