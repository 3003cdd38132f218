"""What every layer of `attention.nn` works under, checked for a module and its inputs.

`module(*inputs, **options)` returns a tensor or a tuple of tensors. Inputs are leaves that require
gradients.
"""

import copy
import multiprocessing
import pickle
import weakref
from functools import partial
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def tensors(outs):
    """The outputs as a tuple."""
    return outs if isinstance(outs, tuple) else (outs,)


def placed(module, inputs, options):
    """The module, its inputs as leaves, and its options, on the GPU if there is one."""
    leaves = [x.detach().to(DEVICE).requires_grad_() for x in inputs]
    return module.to(DEVICE), leaves, {name: x.to(DEVICE) for name, x in options.items()}


def total(outs):
    """A fixed sum over the outputs, in which every number has a weight of its own."""
    parts = []
    for out in tensors(outs):
        generator = torch.Generator().manual_seed(out.numel())
        weights = torch.randint(-16, 17, out.shape, generator=generator).to(out.device) / 8
        parts.append((out.double() * weights).sum())
    return torch.stack(parts).sum()


def results(function, module, inputs):
    """The outputs, and the gradients of `total` with respect to parameters and inputs."""
    outs = tensors(function(*inputs))
    leaves = [*module.parameters(), *inputs]
    gradients = torch.autograd.grad(total(outs), leaves, materialize_grads=True, allow_unused=True)
    return [*(out.detach() for out in outs), *gradients]


def check_oracle(
    module, oracle, *inputs, tolerance, compared=lambda outs, **options: outs, **options
):
    """Outputs and gradients in float64 are those of an oracle, which runs on the CPU.

    oracle: takes the inputs and options of the module, and reads its weights
    compared: the part of the outputs that is defined, from the outputs and the options
    """
    module.eval()
    expected = results(lambda *x: compared(oracle(*x, **options), **options), module, inputs)
    module, inputs, options = placed(module, inputs, options)
    actual = results(lambda *x: compared(module(*x, **options), **options), module, inputs)
    for a, e in zip(actual, expected, strict=True):
        assert_close(a.cpu(), e, rtol=0, atol=tolerance)


def check_autocast(module, *inputs, tolerance=0.05, **options):
    """Under bfloat16 outputs are in bfloat16, near those in float32; gradients are in float32."""
    module, inputs, options = placed(module, inputs, options)
    module.eval()
    expected = tensors(module(*inputs, **options))
    with torch.autocast(inputs[0].device.type, dtype=torch.bfloat16):
        outs = tensors(module(*inputs, **options))
    for out, exact in zip(outs, expected, strict=True):
        assert out.dtype == torch.bfloat16 and out.isfinite().all()
        error = (out.float() - exact).abs().mean()
        assert error <= tolerance * exact.abs().mean()
    gradients = torch.autograd.grad(total(outs), list(module.parameters()), materialize_grads=True)
    for gradient in gradients:
        assert gradient.dtype == torch.float32 and gradient.isfinite().all()


def check_checkpointing(module, *inputs, **options):
    """Outputs and gradients of a training step are the same with activation checkpointing."""
    module, inputs, options = placed(module, inputs, options)
    module.train()
    call = partial(module, **options)
    torch.manual_seed(0)
    expected = results(call, module, inputs)
    for use_reentrant in (True, False):
        torch.manual_seed(0)
        # Gradients of a checkpointed reentrant call can only be accumulated.
        leaves = [x.detach().requires_grad_() for x in inputs]
        outs = tensors(checkpoint(call, *leaves, use_reentrant=use_reentrant))
        module.zero_grad()
        total(outs).backward()
        gradients = [x.grad for x in (*module.parameters(), *leaves)]
        for actual, wanted in zip([*outs, *gradients], expected, strict=True):
            assert_close(torch.zeros_like(wanted) if actual is None else actual, wanted)


def train_a_step(module, *inputs, **options):
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01)
    total(module(*inputs, **options)).backward()
    optimiser.step()


def check_copies(module, *inputs, **options):
    """After a training step `copy.deepcopy` and pickling give the same function."""
    module, inputs, options = placed(module, inputs, options)
    train_a_step(module, *inputs, **options)
    module.eval()
    expected = tensors(module(*inputs, **options))
    for same in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert all(map(torch.equal, tensors(same(*inputs, **options)), expected))


def check_state_dict(make, *inputs, **options):
    """Another module with the same state_dict is the same function. make: builds a module."""
    module, inputs, options = placed(make().eval(), inputs, options)
    other = make().to(DEVICE).eval()
    with torch.no_grad():
        for weight in other.parameters():
            weight += 1
    other.load_state_dict(module.state_dict())
    same = map(torch.equal, tensors(other(*inputs, **options)), tensors(module(*inputs, **options)))
    assert all(same)


class Saved:
    """A tensor that the graph keeps for the backward pass."""

    def __init__(self, tensor):
        self.tensor = tensor


def check_graph_is_freed(module, *inputs, **options):
    """Once the outputs of a training step are deleted, nothing of its graph is left."""
    module, inputs, options = placed(module, inputs, options)
    kept = []

    def pack(tensor):
        # A result that is kept with its own graph would be a reference cycle.
        saved = Saved(tensor.detach())
        kept.append(weakref.ref(saved))
        return saved

    module.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        outs = module(*inputs, **options)
    assert any(reference() is not None for reference in kept)
    del outs
    assert all(reference() is None for reference in kept)


def graph_breaks(module, *inputs, **options):
    """The files, with their folders, where `torch.compile` breaks the graph of a forward pass."""
    module, inputs, options = placed(module, inputs, options)
    torch._dynamo.reset()
    reasons = torch._dynamo.explain(module)(*inputs, **options).break_reasons
    return {"/".join(Path(reason.user_stack[-1].filename).parts[-2:]) for reason in reasons}


def check_compile(module, *inputs, fullgraph=True, **options):
    """`torch.compile` gives the same outputs and gradients; fullgraph: in a single graph."""
    module, inputs, options = placed(module, inputs, options)
    torch.manual_seed(0)
    expected = results(partial(module, **options), module, inputs)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="eager", fullgraph=fullgraph)
    torch.manual_seed(0)
    actual = results(partial(compiled, **options), module, inputs)
    assert_close(actual, expected)


def check_distributed(module, folder, *inputs, **options):
    """Two processes with half of the batch each have the gradient of the whole batch.

    The outputs of a batch are those of its halves, and `total` is of each half.
    """
    module.eval()
    module.zero_grad()
    halves = [
        ([x.detach()[b : b + 1] for x in inputs], {k: x[b : b + 1] for k, x in options.items()})
        for b in range(2)
    ]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    processes = [
        context.Process(target=_worker, args=(rank, str(folder), module, *halves[rank]))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    for half, given in halves:
        (total(module(*half, **given)) / 2).backward()
    expected = [weight.grad for weight in module.parameters()]
    for rank in range(2):
        assert_close(torch.load(f"{folder}/{rank}.pt"), expected)


def _worker(rank, folder, module, inputs, options):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    parallel = DistributedDataParallel(module)
    total(parallel(*inputs, **options)).backward()
    torch.save([weight.grad for weight in module.parameters()], f"{folder}/{rank}.pt")
    distributed.destroy_process_group()
