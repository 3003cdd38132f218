"""Attention transfer: a bounded memory learns the outputs of a trained model's attention."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from fairseq.logging import metrics
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.criterions import SummedCriterion, sums
from fairseq_memattn.errors import MemAttnError, option
from fairseq_memattn.modules.layout import batch_first

NO_DROPOUT = {
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "relu_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
WEIGHTS = ChoiceEnum(["control", "attention"])


@dataclass
class AttentionTransferConfig(FairseqDataclass):
    attention_teacher: str = option(
        "",
        "trained checkpoint whose attention the model's bounded memories imitate; the model has "
        "the same layers and sizes, as `memattn convert` makes it",
    )
    attention_transfer_weights: WEIGHTS = option(  # type: ignore[valid-type]
        "control",
        "what learns: control, the control's weights alone, such as W_phi, which need a large "
        "learning rate (0.1); attention, the projections of the attention as well",
    )


@dataclass
class Call:
    """A call of a module of the teacher: its arguments and its output (T, B, E)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Tensor


@register_criterion("attention_transfer", dataclass=AttentionTransferConfig)
class AttentionTransferCriterion(SummedCriterion):
    """The squared error of each bounded attention's output, relative to the teacher's output.

    The attention of a layer gets the inputs that the teacher's attention has in the same layer, so
    that all layers learn at once, each from exact inputs: attention transfer, after Zhang et al.,
    2024, *LoLCATs: On low-rank linearizing of large language models*, section 3.2. The loss is the
    mean over the attentions of sum ||o - o*||^2 / sum ||o*||^2, where the sums are over the tokens
    of the batch that are not padding. Only the weights of controls get gradients, or all weights of
    bounded attentions; those that --abc-low-rank has frozen stay so. Attentions that are softmax
    attention in the model as well have no part in it.

    Raises MemAttnError for a teacher that lacks an attention of the model, and for controls without
    weights if only these are to learn.
    """

    def __init__(
        self, task: Any, attention_teacher: str, attention_transfer_weights: str = "control"
    ) -> None:
        super().__init__(task)
        if not attention_teacher:
            raise MemAttnError("--criterion attention_transfer needs --attention-teacher")
        # Tasks keep what they build for a model, such as its generator, so the teacher has a copy.
        own = copy.copy(task)
        teachers, _ = checkpoint_utils.load_model_ensemble(
            [attention_teacher], arg_overrides=NO_DROPOUT, task=own
        )
        if hasattr(task, "positions"):  # of windows that both models take
            task.positions = own.positions
        teacher = teachers[0].requires_grad_(False)
        # In a tuple, because the teacher is neither trained nor saved with the criterion.
        self._teacher = (teacher,)
        self.weights = str(attention_transfer_weights)

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        students = bounded_attentions(model)
        calls = self._calls(students, sample)
        inputs = sample["net_input"]
        counted = {
            "encoder": inputs["src_tokens"].ne(self.padding_idx),
            "decoder": inputs.get("prev_output_tokens", inputs["src_tokens"]).ne(self.padding_idx),
        }
        with frozen(self._frozen(students.values())):
            errors = [
                relative_error(student, calls[name], counted[name.partition(".")[0]])
                for name, student in students.items()
            ]
        size = int(sample["ntokens"])
        loss = torch.stack(errors).mean() * size
        logged = {
            "loss": loss.data,
            "ntokens": size,
            "nsentences": len(inputs["src_tokens"]),
            "sample_size": size,
        }
        return loss, size, logged

    def _frozen(self, students: Iterable[ABCAttention]) -> list[nn.Parameter]:
        """The weights of the attentions that do not learn."""
        if self.weights == "attention":
            return []
        learning = {weight for student in students for weight in student.control.parameters()}
        if not learning:
            raise MemAttnError(
                "--attention-transfer-weights control needs a control that has weights, such as "
                "mlp; use --attention-transfer-weights attention"
            )
        return [w for student in students for w in student.parameters() if w not in learning]

    @torch.no_grad()
    def _calls(self, students: dict[str, ABCAttention], sample: dict[str, Any]) -> dict[str, Call]:
        """The teacher's calls of the modules with the students' names."""
        (teacher,) = self._teacher
        dtype = next(iter(students.values())).q_proj.weight.dtype
        teacher.to(device=sample["net_input"]["src_tokens"].device, dtype=dtype)
        modules = dict(teacher.named_modules())
        for name in students:
            if name not in modules:
                raise MemAttnError(
                    f"--attention-teacher has no attention {name}, which the model has; both must "
                    "have the same layers"
                )
        with recorded({name: modules[name] for name in students}) as calls:
            teacher(**sample["net_input"])
        return calls

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Logs the loss, which is a share and has no base."""
        loss, size = sums(logging_outputs, ("loss", "sample_size"))
        if size:  # 0 in a process without a batch of its own
            metrics.log_scalar("loss", loss / size, size, round=4)


def bounded_attentions(model: nn.Module) -> dict[str, ABCAttention]:
    """The model's bounded attentions by name.

    Raises MemAttnError for a model without any, and for those that do not work alone.
    """
    found = {
        name: module
        for name, module in _unwrapped(model).named_modules()
        if isinstance(module, ABCAttention)
    }
    if not found:
        raise MemAttnError(
            "--criterion attention_transfer needs a model with bounded memories, such as "
            "abc_mlp_transformer"
        )
    for name, attention in found.items():
        if attention.control.passes_memory:
            raise MemAttnError(
                "--criterion attention_transfer calls each attention alone, but the "
                f"{type(attention.control).__name__} of {name} passes its memory to the next layer"
            )
    return found


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model without what wraps it in several processes."""
    while isinstance(model, ModuleProxyWrapper | LegacyDistributedDataParallel):
        model = model.module
    if isinstance(model, DistributedDataParallel):
        raise MemAttnError(
            "--criterion attention_transfer needs --ddp-backend legacy_ddp in several processes, "
            "because it calls the attentions without the rest of the model"
        )
    return model


@contextmanager
def recorded(modules: dict[str, nn.Module]) -> Iterator[dict[str, Call]]:
    """The last call of each module within the context, by the names of the modules."""
    calls: dict[str, Call] = {}

    def recorder(name: str) -> Any:
        def record(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            calls[name] = Call(args, kwargs, output[0])

        return record

    hooks = [
        module.register_forward_hook(recorder(name), with_kwargs=True)
        for name, module in modules.items()
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def frozen(weights: Sequence[nn.Parameter]) -> Iterator[None]:
    """What is computed within the context has no gradient for these weights."""
    learning = [weight for weight in weights if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def relative_error(student: nn.Module, call: Call, counted: Tensor) -> Tensor:
    """sum ||o - o*||^2 / sum ||o*||^2.

    counted: (B, T), the queries that are not padding
    """
    output, _ = student(*call.args, **call.kwargs)
    expected = batch_first(call.output)[counted].float()
    return (batch_first(output)[counted].float() - expected).square().sum() / (
        expected.square().sum()
    )
