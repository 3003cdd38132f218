"""BERT's Adam, with which the GMAT paper trains (appendix A.4)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor


class BertAdam(torch.optim.Optimizer):
    """Adam without bias correction, as in BERT's `AdamWeightDecayOptimizer`.

    Biases and the weights of layer norms do not decay: all parameters of one dimension. The
    learning rate multiplies the decay.
    """

    def __init__(self, params: Iterable[Tensor], **defaults: Any) -> None:
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, weight.grad, group)
        return loss

    def _update(self, weight: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state.update({name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")})
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        first, second = group["betas"]
        mean.mul_(first).add_(grad, alpha=1 - first)
        square.mul_(second).addcmul_(grad, grad, value=1 - second)
        change = mean / (square.sqrt() + group["eps"])
        if weight.dim() > 1:
            change.add_(weight, alpha=group["weight_decay"])
        weight.add_(change, alpha=-group["lr"])


@dataclass
class BertAdamConfig(FairseqDataclass):
    """The defaults are BERT's."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas of Adam"})
    adam_eps: float = field(default=1e-6, metadata={"help": "epsilon of Adam"})
    weight_decay: float = field(
        default=0.01, metadata={"help": "weight decay of parameters of two and more dimensions"}
    )
    lr: list[float] = II("optimization.lr")


@register_optimizer("bert_adam", dataclass=BertAdamConfig)
class FairseqBertAdam(FairseqAdam):
    """BERT's Adam. With --fp16 it needs --fp16-no-flatten-grads, which keeps dimensions apart."""

    def __init__(self, cfg: BertAdamConfig, params: Iterable[Tensor]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        self._optimizer = BertAdam(params, **self.optimizer_config)
