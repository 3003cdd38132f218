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


def use_fairseq_dropout_within(stack: nn.Module) -> None:
    """`use_fairseq_dropout` of a stack and all its parts, by the name of its class."""
    for module in list(stack.modules()):
        use_fairseq_dropout(module, type(stack).__name__)


class KeepsDropout(nn.Module):
    """A base of modules whose attentions are not fairseq's."""

    def make_generation_fast_(
        self,
        *,
        retain_dropout: bool = False,
        retain_dropout_modules: list[str] | None = None,
        **others: Any,
    ) -> None:
        """fairseq's hook, with its options; a module's name is its class's."""
        for part in self.modules():
            if isinstance(part, AttentionDropout):
                names, name = retain_dropout_modules, type(part).__name__
                part.keeps_dropout = retain_dropout and (names is None or name in names)
