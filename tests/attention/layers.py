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
from cases import Inputs, fixed_sum, outputs, run
from torch import distributed
from torch.autograd import gradgradcheck
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def placed(module, inputs, options):
    """The module, its inputs as leaves, and its options, on the GPU if there is one."""
    leaves = [x.detach().to(DEVICE).requires_grad_() for x in inputs]
    return module.to(DEVICE), leaves, {name: x.to(DEVICE) for name, x in options.items()}


def results(function, module, inputs):
    """The outputs, and the gradients of `fixed_sum` with respect to parameters and inputs."""
    numbered = {f"input {number}": x for number, x in enumerate(inputs)}
    leaves = Inputs(**dict(module.named_parameters()), **numbered)
    return run(lambda *_: function(*inputs), leaves, allow_unused=True)


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
    actual = {name: result.cpu() for name, result in actual.items()}
    assert_close(actual, expected, rtol=0, atol=tolerance)


def check_autocast(module, *inputs, tolerance=0.05, **options):
    """Under bfloat16 outputs are in bfloat16, near those in float32; gradients are in float32."""
    module, inputs, options = placed(module, inputs, options)
    module.eval()
    expected = outputs(module(*inputs, **options))
    with torch.autocast(inputs[0].device.type, dtype=torch.bfloat16):
        outs = outputs(module(*inputs, **options))
    for out, exact in zip(outs, expected, strict=True):
        assert out.dtype == torch.bfloat16 and out.isfinite().all()
        error = (out.float() - exact).abs().mean()
        assert error <= tolerance * exact.abs().mean()
    weights = tuple(module.parameters())
    gradients = torch.autograd.grad(fixed_sum(outs), weights, materialize_grads=True)
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
        outs = outputs(checkpoint(call, *leaves, use_reentrant=use_reentrant))
        module.zero_grad()
        fixed_sum(outs).backward()
        gradients = [x.grad for x in (*module.parameters(), *leaves)]
        for actual, wanted in zip([*outs, *gradients], expected.values(), strict=True):
            assert_close(torch.zeros_like(wanted) if actual is None else actual, wanted)


def train_a_step(module, *inputs, **options):
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01)
    fixed_sum(module(*inputs, **options)).backward()
    optimiser.step()


def check_copies(module, *inputs, **options):
    """After a training step `copy.deepcopy` and pickling give the same function."""
    module, inputs, options = placed(module, inputs, options)
    train_a_step(module, *inputs, **options)
    module.eval()
    expected = outputs(module(*inputs, **options))
    for same in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert all(map(torch.equal, outputs(same(*inputs, **options)), expected))


def check_state_dict(make, *inputs, **options):
    """Another module with the same state_dict is the same function. make: builds a module."""
    module, inputs, options = placed(make().eval(), inputs, options)
    other = make().to(DEVICE).eval()
    with torch.no_grad():
        for weight in other.parameters():
            weight += 1
    other.load_state_dict(module.state_dict())
    same = map(torch.equal, outputs(other(*inputs, **options)), outputs(module(*inputs, **options)))
    assert all(same)


def check_second_derivatives(module, *inputs, **options):
    """Second derivatives for weights and inputs are those of finite differences, in float64.

    By PyTorch's attention in plain operations; its fused forms have none.
    """
    module, inputs, options = placed(module.double(), [x.double() for x in inputs], options)
    weights = dict(module.named_parameters())

    def call(*tensors):
        given = dict(zip(weights, tensors, strict=False))
        return functional_call(module, given, tensors[len(weights) :], options)

    with sdpa_kernel(SDPBackend.MATH):
        assert gradgradcheck(call, (*weights.values(), *inputs), fast_mode=True)


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


def check_compile(module, *inputs, broken_in=frozenset(), **options):
    """`torch.compile` gives the same outputs and gradients, in a single graph.

    broken_in: the files, with their folders, where the graph of the forward pass may break, as it
        does on a CPU; None where it may break anywhere
    """
    # Takes a second, which the processes of `check_distributed` need not spend.
    from torch._dynamo.backends.debugging import ExplainWithBackend

    module, inputs, options = placed(module, inputs, options)
    torch.manual_seed(0)
    expected = results(partial(module, **options), module, inputs)
    torch._dynamo.reset()
    backend = ExplainWithBackend("eager")
    compiled = torch.compile(module, backend=backend, fullgraph=broken_in == set())
    torch.manual_seed(0)
    assert_close(results(partial(compiled, **options), module, inputs), expected)
    stacks = [reason.user_stack for reason in backend.output().break_reasons]
    files = {"/".join(Path(stack[-1].filename).parts[-2:]) for stack in stacks}
    assert broken_in is None or files <= broken_in


def check_distributed(folder, *calls):
    """Two processes with half of the batch each have the gradient of the whole batch.

    The outputs of a batch are those of its halves, and `fixed_sum` is of each half.
    calls: tuples of a module, its inputs and its options, all of them for the same two processes
    """
    halves = [[], []]
    for module, inputs, options in calls:
        module.eval()
        module.zero_grad()
        for b, half in enumerate(halves):
            given = {name: x[b : b + 1] for name, x in options.items()}
            half.append((module, [x.detach()[b : b + 1] for x in inputs], given))
    context = multiprocessing.get_context("forkserver")
    # What takes a second to import, and `DistributedDataParallel` does.
    context.set_forkserver_preload(["torch.nn.parallel", "torch._dynamo"])
    processes = [
        context.Process(target=_worker, args=(rank, str(folder), halves[rank])) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    for call in (*halves[0], *halves[1]):
        _gradients(*call)
    expected = [[weight.grad / 2 for weight in module.parameters()] for module, *_ in calls]
    for rank in range(2):
        assert_close(torch.load(f"{folder}/{rank}.pt"), expected)


def _worker(rank, folder, calls):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    gradients = [_gradients(DistributedDataParallel(module), *given) for module, *given in calls]
    torch.save(gradients, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def _gradients(module, inputs, options):
    fixed_sum(module(*inputs, **options)).backward()
    return [weight.grad for weight in module.parameters()]
