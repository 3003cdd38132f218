"""Registers, spills and shared memory of the Triton kernels, compiled without a GPU.

    python benchmarks/kernel_resources.py --capability 80 90 --width 64 128 --slots 32 64 128

Every kernel is compiled for each GPU and size in the blocks that `abc.triton` chooses. A stack
is what is spilled to memory. Needs triton, tqdm, and torch in any build.
"""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import warnings
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

if importlib.util.find_spec("triton") is None:
    sys.exit("kernel_resources.py: error: the package triton is not installed")
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
import triton  # noqa: E402
from tqdm import tqdm  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from fairseq_memattn.attention.ops.abc.triton import decoding, kernels, launch  # noqa: E402
from fairseq_memattn.attention.ops.abc.triton.decoding import step_blocks  # noqa: E402
from fairseq_memattn.attention.ops.common import KERNEL_LIMIT  # noqa: E402
from fairseq_memattn.evaluation.tables import table  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SCANS = ("scan", "scan_back")
KERNELS = {
    **{name: getattr(kernels, name) for name in ("states", "scan", "attend")},
    **{name: getattr(kernels, name) for name in ("queries_back", "scan_back", "tokens_back")},
    "steep_back": kernels.queries_back,
    "attend_sums": kernels.attend,
    "sums_back": kernels.queries_back,
    "step_kernel": decoding.step_kernel,
}
# Bytes of shared memory that one program can have.
SHARED_MEMORY = {80: 166912, 86: 101376, 89: 101376, 90: 232448}

PRODUCTS = ("wgmma", "mma.sync")  # of warp groups, and of warps

# Arguments that are neither sizes nor strides, by the type of what they point to.
TOKENS = ("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v")
OF_GRADIENTS = ("weights_p", "grads", "grad_memories")
STATES = ("start_", "end_", "grad_start_", "grad_end_")
FLOATS = ("floats", "grad_masses", "log_alpha", "grad_log_alpha", "log_sum", "grad_log_sum")


class Row(NamedTuple):
    """What one compiled kernel takes.

    products: the instructions of matrix products, or none
    registers: of a thread; stack, shared: in bytes
    """

    capability: int
    dtype: str
    width: int
    slots: int
    kernel: str
    products: str
    registers: int
    stack: int
    shared: int


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    if launch.INTERPRETED:
        sys.exit(
            "kernel_resources.py: error: TRITON_INTERPRET must not be set, as Triton then "
            "interprets the kernels, and compiles none"
        )
    warnings.simplefilter("ignore")
    cases = list(product(args.capability, args.dtype, args.width, args.slots, args.kernels))
    rows = [compiled(*case) for case in tqdm(cases, unit="kernel")]
    shown = [[str(value) for value in row] for row in rows]
    print(table([[name.replace("_", " ") for name in Row._fields], *shown]))


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--capability",
        type=int,
        nargs="+",
        choices=SHARED_MEMORY,
        default=[80, 90],
        help="of the GPU (80 90)",
    )
    add("--dtype", nargs="+", choices=DTYPES, default=["bf16"], help="of the inputs (bf16)")
    add("--width", type=size, nargs="+", default=[64, 128], metavar="D", help="D (64 128)")
    add("--slots", type=size, nargs="+", default=[32, 64, 128], metavar="M", help="M (32 64 128)")
    add("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS), help="(all)")
    return parser.parse_args(argv)


def size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= KERNEL_LIMIT:
        raise argparse.ArgumentTypeError(f"must be from 1 to {KERNEL_LIMIT}, but is {text}")
    return int(text)


def compiled(capability: int, dtype: str, width: int, slots: int, name: str) -> Row:
    built = build(capability, DTYPES[dtype], width, slots, name)
    products = "+".join(form for form in PRODUCTS if form in built.asm["ptx"]) or "none"
    used = *usage(built.asm["cubin"]), built.metadata.shared
    return Row(capability, dtype, width, slots, name, products, *used)


def build(capability: int, dtype: torch.dtype, width: int, slots: int, name: str) -> Any:
    kernel, shape = KERNELS[name], launch.Shape(1, 2, 64, width, 2, slots, dtype, 0, True)
    plan = launch.Plan(shape)
    if name == "step_kernel":
        constants = {"D": width, "M": slots, "NORMALISED": True, **step_blocks(width, slots)}
        warps = constants.pop("num_warps")
    elif name in SCANS:
        constants, warps = {**plan.of_scans, "GIVEN": True}, plan.blocks.scan_warps
        constants |= {"LAST": True} if name == "scan_back" else {}
    else:
        constants, warps = plan.of_chunks, plan.blocks.warps
        constants = {**constants, "STEEP": name == "steep_back", "SUM": "sums" in name}
    constants = {key: value for key, value in constants.items() if key in kernel.arg_names}
    signature = {key: kind(key, plan, constants) for key in kernel.arg_names}
    aligned = {
        (number,): [["tt.divisibility", 16]]
        for number, key in enumerate(kernel.arg_names)
        if signature[key].startswith("*") or re.fullmatch(r"\w_[bht]", key)
    }
    return triton.compile(
        ASTSource(kernel, signature, constants, aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": warps},
    )


def kind(name: str, plan: Any, constants: dict[str, Any]) -> str:
    """The type of an argument, in Triton's words."""
    types = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
    if name in constants:
        return "constexpr"
    for names, dtype in (
        (TOKENS, plan.shape.dtype),
        (("memories",), plan.memories),
        (OF_GRADIENTS, plan.gradients),
        (FLOATS, torch.float32),
    ):
        if name in names or dtype == torch.float32 and name.startswith(STATES):
            return f"*{types[dtype]}"
    return {"scale": "fp32", "cu_seqlens": "*i32"}.get(name, "i32")


def usage(cubin: bytes) -> tuple[int, int]:
    """The registers and the bytes of stack of a thread, by the disassembler that Triton ships."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise ValueError(f"{tool} printed no registers: {text!r}")
    return int(found[1]), int(found[2])


if __name__ == "__main__":
    main()
