"""Trains a decoder with bounded memories to do what its teacher does, by transformers' Trainer.

Source: Zhang et al., "LoLCATs: On Low-Rank Linearizing of Large Language Models", 2024, sections
3.2 (attention transfer) and 3.3 (low-rank updates). In the second stage the teacher's distribution
takes the place of the text's next token.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from fairseq_memattn.attention.controls.softmax import SoftmaxControl
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.nn.low_rank import give_updates, merge_updates, projections_of
from fairseq_memattn.transformers.decoder import BoundedDecoderForCausalLM

# The weights of controls are new, and learn that many times as fast as those of the model.
CONTROL_RATE = 10


class Imitation(Trainer):
    """Trains a student on blocks of tokens, beside the teacher, which is on the same device.

    rows: {"input_ids": (T,)} each
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        student: BoundedDecoderForCausalLM,
        args: TrainingArguments,
        rows: Any,
    ) -> None:
        rates: dict[float, list[nn.Parameter]] = {1: [], CONTROL_RATE: []}
        for name, weight in student.named_parameters():
            if weight.requires_grad:
                rates[CONTROL_RATE if ".control." in name else 1].append(weight)
        groups = [{"params": all_, "lr": args.learning_rate * k} for k, all_ in rates.items()]
        optimizer = torch.optim.AdamW(groups, weight_decay=args.weight_decay)
        super().__init__(model=student, args=args, train_dataset=rows, optimizers=(optimizer, None))
        self.teacher = teacher
        self.model_accepts_loss_kwargs = False  # the losses are means of a batch

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """transformers' hook. Both models run in the precision of the training."""
        device = inputs["input_ids"].device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.args.bf16):
            return self.loss_of(model, inputs["input_ids"])

    def loss_of(self, student: nn.Module, tokens: Tensor) -> Tensor:
        """tokens: (B, T)"""
        raise NotImplementedError

    def go_on(self) -> None:
        """Trains from the last checkpoint, if there is one."""
        folder = str(self.args.output_dir)
        last = get_last_checkpoint(folder) if Path(folder).is_dir() else None
        self.train(resume_from_checkpoint=last)


class AttentionTransfer(Imitation):
    """Each bounded attention learns the output that the teacher's has for the same input."""

    def loss_of(self, student: nn.Module, tokens: Tensor) -> Tensor:
        """The mean of `attention_errors`."""
        return torch.stack(attention_errors(self.teacher, student, tokens)).mean()


class Distillation(Imitation):
    """The student learns the teacher's distribution of each next token."""

    def loss_of(self, student: nn.Module, tokens: Tensor) -> Tensor:
        """The mean Kullback-Leibler divergence of a token, in nats."""
        with torch.no_grad():
            expected = self.teacher(tokens, use_cache=False).logits.float().log_softmax(dim=-1)
        found = student(tokens).logits.float().log_softmax(dim=-1)
        return kl_div(found, expected, reduction="sum", log_target=True) / tokens.numel()


def bounded(student: nn.Module) -> dict[int, ABCAttention]:
    """The attentions that are not softmax attention, by their layers."""
    layers: Any = student.get_submodule("model.layers")
    attentions = {number: layer.self_attn for number, layer in enumerate(layers)}
    return {i: x for i, x in attentions.items() if not isinstance(x.control, SoftmaxControl)}


def attention_errors(teacher: Any, student: nn.Module, tokens: Tensor) -> list[Tensor]:
    """sum ||o - o*||^2 / sum ||o*||^2 of each bounded attention, for tokens (B, T).

    Both attentions of a layer get the teacher's states, in one pass of the teacher.
    """
    errors: list[Tensor] = []

    def compare(attention: ABCAttention, _: Any, args: Any, kwargs: Any, output: Any) -> None:
        x, expected = kwargs.get("hidden_states", *args[:1]), output[0].float()
        with torch.enable_grad():
            out = attention(x).float()
            errors.append((out - expected).square().sum() / expected.square().sum())

    hooks = [
        teacher.model.layers[number].self_attn.register_forward_hook(
            partial(compare, attention), with_kwargs=True
        )
        for number, attention in bounded(student).items()
    ]
    try:
        with torch.no_grad():
            teacher.model(tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return errors


def transfer(teacher: Any, student: Any, args: TrainingArguments, rows: Any) -> None:
    """Attention transfer, of all weights of the bounded attentions."""
    student.requires_grad_(False)
    for attention in bounded(student).values():
        attention.requires_grad_(True)
    AttentionTransfer(teacher, student, args, rows).go_on()


def distil(teacher: Any, student: Any, args: TrainingArguments, rows: Any, rank: int) -> None:
    """Distillation of low-rank updates of all attentions, and of the weights of controls."""
    student.requires_grad_(False)
    for attention in bounded(student).values():
        attention.control.requires_grad_(True)
    give_updates(projections_of(student), rank)
    Distillation(teacher, student, args, rows).go_on()
    merge_updates(student)
