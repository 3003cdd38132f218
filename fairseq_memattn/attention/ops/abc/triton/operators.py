"""The operators of the causal form and of its backward pass, registered with torch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fairseq_memattn.attention.ops.abc.triton import kernels
from fairseq_memattn.attention.ops.abc.triton.launch import (
    Plan,
    Shape,
    check_inputs,
    plan_of,
    rows_contiguous,
)
from fairseq_memattn.attention.ops.abc.triton.selftest import may_use_wgmma
from fairseq_memattn.attention.ops.common import MemoryState


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    state: MemoryState | None,
    scale: float,
    chunk_size: int | None,
    *,
    normalised: bool,
    cu_seqlens: Tensor | None = None,
    log_sum: bool = False,
) -> tuple[Tensor, MemoryState, Tensor]:
    """ABC over T positions from a given memory, or from an empty one.

    q, k, v: (B, H, T, D); state: of every sequence
    log_alpha: (B, H or 1, T, M), without padding; or phi that nothing divides if not normalised
    chunk_size: ignored
    cu_seqlens: (N + 1,), where B is 1 and row 0 holds N sequences one after another: sequence n
        from cu_seqlens[n] to cu_seqlens[n + 1]
    log_sum: whether the log of the sum of exp(read logit) is wanted, of a normalised form

    Returns the output in q's dtype, the memories after the last positions, and that log (B, H, T),
    or else an empty tensor.
    Raises ValueError and RuntimeError as `check_inputs` does.
    """
    check_inputs(q, k, v, log_alpha, *(state or ()))
    start = (None,) * 3 if state is None else tuple(state)
    attend = Causal.apply if _is_plain(q) else abc_causal
    options = (cu_seqlens, scale, normalised, log_sum)
    out, sums, *end, _, _ = attend(q, k, v, log_alpha, *start, *options)
    return out, MemoryState(*end), sums


def _is_plain(q: Tensor) -> bool:
    """Whether nobody looks at the operators, whose dispatch takes longer than their launches."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    return type(q) in (Tensor, torch.nn.Parameter) and not q.is_meta


def _plan(q: Tensor, log_alpha: Tensor, cu_seqlens: Tensor | None, normalised: bool) -> Plan:
    wgmma = q.dtype != torch.bfloat16 or may_use_wgmma(q.device, q.shape[3], log_alpha.shape[3])
    return plan_of(Shape.of(q, log_alpha, cu_seqlens, normalised), wgmma)


def _new(plan: Plan, q: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """(B, T, H, width): what the next layer, or the backward pass of the last one, reads.

    Zeros for the positions that belong to none of the packed sequences.
    """
    shape = plan.shape
    make = torch.zeros if shape.sequences else torch.empty
    return make((shape.batch, shape.length, shape.heads, width), dtype=dtype, device=q.device)


def _strides(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> tuple[int, ...]:
    row, head, position, _ = log_alpha.stride()
    of_control = (row, head if log_alpha.shape[1] > 1 else 0, position)
    return (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *of_control)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    start_keys: Tensor | None,
    start_values: Tensor | None,
    start_mass: Tensor | None,
    cu_seqlens: Tensor | None,
    scale: float,
    normalised: bool,
    log_sum: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output, the log sum, the last memory, and the memories and float32 numbers of chunks."""
    q, k, v, log_alpha = (rows_contiguous(x) for x in (q, k, v, log_alpha))
    plan = _plan(q, log_alpha, cu_seqlens, normalised)
    out, sums, *end, memories, floats = _outputs(plan, q, log_sum)
    start = [x.contiguous() for x in (start_keys, start_values, start_mass) if x is not None]
    strides = _strides(q, k, v, log_alpha)
    ends = q if cu_seqlens is None else cu_seqlens
    ready = plan.ready(strides, q, k, v, log_alpha, ends, *start)
    where = (ends, *plan.numbers)
    with torch.cuda.device_of(q):
        plan.each_chunk(
            kernels.states, ready, k, v, log_alpha, memories, floats, *strides[3:], *where
        )
        plan.each_sequence(
            kernels.scan, ready, memories, floats, *(start or end), *end, *where,
            log_alpha.shape[1], GIVEN=bool(start),
        )  # fmt: skip
        plan.each_chunk(
            kernels.attend, ready, q, k, v, log_alpha, memories, floats, out, sums, *strides,
            *where, scale, SUM=log_sum,
        )  # fmt: skip
    return out.transpose(1, 2), sums.transpose(1, 2), *end, memories, floats  # type: ignore[return-value]


def _outputs(plan: Plan, q: Tensor, log_sum: bool) -> list[Tensor]:
    device, float32 = q.device, torch.float32
    sums = (*q.shape[:1], q.shape[2], q.shape[1]) if log_sum else (0, 0, 0)
    shapes = (plan.of_state, plan.of_state, plan.of_mass)
    return [
        _new(plan, q, q.shape[3], q.dtype),
        q.new_empty(sums, dtype=float32),
        *(torch.empty(shape, dtype=float32, device=device) for shape in shapes),
        torch.empty(plan.of_memories, dtype=plan.memories, device=device),
        torch.empty(plan.of_floats, dtype=float32, device=device),
    ]


def backward(
    grad_out: Tensor,
    grad_sum: Tensor | None,
    grad_keys: Tensor | None,
    grad_values: Tensor | None,
    grad_mass: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_alpha: Tensor,
    start_keys: Tensor | None,
    start_values: Tensor | None,
    start_mass: Tensor | None,
    cu_seqlens: Tensor | None,
    end_keys: Tensor,
    end_values: Tensor,
    memories: Tensor,
    floats: Tensor,
    scale: float,
    normalised: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, log_alpha, and of the first memory: keys, values, log mass (N, H, M).

    The gradients of log_alpha and of a log mass that heads share have a part of each head. Those
    of the first memory are empty if there is none.
    """
    q, k, v, log_alpha, grad_out = (rows_contiguous(x) for x in (q, k, v, log_alpha, grad_out))
    plan = _plan(q, log_alpha, cu_seqlens, normalised)
    grads = [_new(plan, q, x.shape[3], x.dtype) for x in (q, k, v, log_alpha)]
    size, heads = plan.blocks, q.shape[1]
    of_group = (plan.group, plan.total)
    tiles = q.new_empty((2, *of_group, size.chunk, size.slots), dtype=plan.gradients)
    grad_memories = q.new_empty((plan.group, *plan.of_memories[1:]), dtype=plan.gradients)
    grad_masses = q.new_empty((*of_group, 2, size.slots), dtype=torch.float32)
    tokens, end = (q, k, v, log_alpha), (end_keys, end_values, floats)
    strides = (*_strides(*tokens), *grad_out.stride()[:3])
    of_sum = floats if grad_sum is None else grad_sum.transpose(1, 2).contiguous()
    of_end = _or_zeros(plan, floats, grad_keys, grad_values, grad_mass)
    starts = _of_start(plan, start_keys, q)
    ends = q if cu_seqlens is None else cu_seqlens
    ready = plan.ready(strides, *tokens, grad_out, ends, *(of_end or ()))
    shared = (*tiles, grad_memories, grad_masses)
    where = (ends, *plan.numbers)
    for head in range(0, heads, plan.group):
        group = min(plan.group, heads - head)
        with torch.cuda.device_of(q):
            for steep in (False, True) if normalised else (False,):
                plan.each_chunk(
                    kernels.queries_back, ready, *tokens, memories, floats, grad_out, of_sum,
                    *grads, *shared, *strides, *where, head, scale, heads=group,
                    SUM=grad_sum is not None, STEEP=steep,
                )  # fmt: skip
            plan.each_sequence(
                kernels.scan_back, ready, grad_memories, grad_masses, floats, end_keys, end_values,
                *(of_end or end), *(end if start_keys is None else starts), *where,
                log_alpha.shape[1], head, heads=group, GIVEN=of_end is not None,
                LAST=start_keys is not None,
            )  # fmt: skip
            plan.each_chunk(
                kernels.tokens_back, ready, *tokens, floats, grad_out, *shared, *grads[1:],
                *strides, *where, head, heads=group,
            )  # fmt: skip
    if start_keys is not None and normalised:
        starts[2] = _of_mass(plan, starts, start_keys, start_values, floats)
    return (*(x.transpose(1, 2) for x in grads), *starts)  # type: ignore[return-value]


def _or_zeros(plan: Plan, like: Tensor, *given: Tensor | None) -> list[Tensor] | None:
    """The gradients of the last memory, contiguous; None if all of them are 0."""
    if all(x is None for x in given):
        return None
    shapes = (plan.of_state, plan.of_state, plan.of_mass)
    return [
        like.new_zeros(shape) if x is None else x.contiguous()
        for x, shape in zip(given, shapes, strict=True)
    ]


def _of_start(plan: Plan, start_keys: Tensor | None, q: Tensor) -> list[Tensor]:
    shapes: list[Any] = [plan.of_state, plan.of_state, plan.of_state[:3]]
    return [q.new_empty(0 if start_keys is None else x, dtype=torch.float32) for x in shapes]


def _of_mass(
    plan: Plan, grads: list[Tensor], keys: Tensor, values: Tensor | None, floats: Tensor
) -> Tensor:
    """The gradient of the log mass (N, H, M) of a memory from dH, dG and dU.

    The keys and values are taken less the means of the sequence, as dU is.
    """
    size, width = plan.sequences * 2 * plan.blocks.width, plan.shape.width
    centres = floats[-plan.shape.heads * size :].view(plan.shape.heads, plan.sequences, 2, -1)
    centre_keys, centre_values = centres[..., :width].permute(2, 1, 0, 3).unsqueeze(3)
    assert values is not None
    grad_keys, grad_values, grad_mass = grads
    result: Tensor = (grad_keys * (keys - centre_keys)).sum(-1) - grad_mass
    result += (grad_values * (values - centre_values)).sum(-1)
    return result


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.scale, ctx.normalised, _ = inputs
    _, _, end_keys, end_values, _, *of_chunks = output
    ctx.mark_non_differentiable(*of_chunks)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, end_keys, end_values, *of_chunks)


def _gradients(compute: Callable[..., Any], ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    q, _, _, log_alpha, start_keys, _, start_mass, *_ = tensors
    grad_out = torch.zeros_like(q) if grads[0] is None else grads[0]
    *of_tokens, grad_log_alpha, grad_keys, grad_values, grad_mass = compute(
        grad_out, *grads[1:5], *tensors, ctx.scale, ctx.normalised
    )
    start: list[Tensor | None] = [None] * 3
    if start_keys is not None:
        start = [grad_keys, grad_values, None]
        start[2] = _sum_heads(grad_mass, start_mass) if ctx.normalised else None
    return (*of_tokens, _sum_heads(grad_log_alpha, log_alpha), *start, *[None] * 4)


def _sum_heads(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of a tensor that all heads shared, if they did."""
    return grad if grad.shape[1] == like.shape[1] else grad.sum(dim=1, keepdim=True)


class Causal(torch.autograd.Function):
    """The operators without their dispatch."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        # Not in `setup_context`, for which torch looks at the signature in each call.
        output = forward(*inputs)
        _save(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the backend triton has no second derivatives (create_graph=True); "
                'compute them in use_backend("naive").'
            )
        return _gradients(backward, ctx, *grads)


def _fake(*args: Any) -> tuple[Tensor, ...]:
    q, log_alpha, cu_seqlens, normalised, log_sum = args[0], args[3], args[7], *args[9:]
    out, sums, *rest = _outputs(Plan(Shape.of(q, log_alpha, cu_seqlens, normalised)), q, log_sum)
    return out.transpose(1, 2), sums.transpose(1, 2), *rest


def _fake_backward(*args: Any) -> tuple[Tensor, ...]:
    q, _, _, log_alpha, start_keys, _, _, cu_seqlens = args[5:13]
    plan = Plan(Shape.of(q, log_alpha, cu_seqlens, True))
    grads = (_new(plan, q, x.shape[3], x.dtype) for x in args[5:9])
    return (*(x.transpose(1, 2) for x in grads), *_of_start(plan, start_keys, q))


abc_causal = torch.library.custom_op("memattn::abc_causal", mutates_args=())(forward)
abc_causal_backward = torch.library.custom_op("memattn::abc_causal_backward", mutates_args=())(
    backward
)
abc_causal.register_fake(_fake)
abc_causal_backward.register_fake(_fake_backward)
abc_causal.register_autograd(partial(_gradients, abc_causal_backward), setup_context=_save)
