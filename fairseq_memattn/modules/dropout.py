"""fairseq's --retain-dropout, for networks and attentions that are not fairseq's."""

from typing import Any

from fairseq.modules import FairseqDropout
from torch import nn

from fairseq_memattn.attention.nn.dropout import AttentionDropout


def use_fairseq_dropout(module: nn.Module, name: str) -> None:
    """Replaces dropout, so that fairseq can keep it in evaluation by the module's name."""
    for child_name, child in list(module.named_children()):
        if isinstance(child, nn.Dropout):
            setattr(module, child_name, FairseqDropout(child.p, module_name=name))


def keep_dropout(
    module: nn.Module,
    retain_dropout: bool = False,
    retain_dropout_modules: list[str] | None = None,
    **others: Any,
) -> None:
    """What `make_generation_fast_` of a module does for the attentions in it.

    retain_dropout, retain_dropout_modules: fairseq's options; a module's name is its class's
    """
    for part in module.modules():
        if isinstance(part, AttentionDropout):
            names = retain_dropout_modules
            part.keeps_dropout = retain_dropout and (names is None or type(part).__name__ in names)
