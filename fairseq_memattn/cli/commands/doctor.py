"""`memattn doctor`: checks the installation, and says what is missing and how to install it.

It imports every package that the plugin uses, registers the models with fairseq, compares an
attention layer with its slow form on the CPU and on a GPU, and trains a small model for two
updates. It prints what the registration replaces in fairseq. It takes less than a minute, and on a
GPU a few minutes once, to compile the kernels. The exit status is 1 if something is missing or does
not work without which models cannot be trained.
"""

import argparse
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.files import write_json
from fairseq_memattn.host.installation import INSTALL, TORCH

OK, MISSING, BROKEN, OPTIONAL = "ok", "missing", "broken", "not installed"


@dataclass(frozen=True)
class Package:
    """A package by its name on PyPI.

    module: what is imported; purpose: what needs it; extra: the extra of this package that has it
    """

    name: str
    module: str
    purpose: str
    least: str = ""
    extra: str = ""


FAIRSEQ_RUNS = sys.version_info < (3, 13)
HYDRA = Package("hydra-core", "hydra", "fairseq's configuration")
# Beside torch and fairseq.
REQUIRED = (
    Package("numpy", "numpy", "arrays"),
    Package("sacrebleu", "sacrebleu", "BLEU and chrF"),
    Package("sentencepiece", "sentencepiece", "vocabularies of pieces", least="0.2.3"),
    Package("regex", "regex", "tokenisation"),
    HYDRA,
    Package("matplotlib", "matplotlib", "pictures"),
    Package("tqdm", "tqdm", "progress bars"),
    Package("shtab", "shtab", "memattn completion"),
    Package("sentence-splitter", "sentence_splitter", "memattn contrast --translations"),
)
IN_EXTRAS = (
    Package("sacremoses", "sacremoses", "corpora in tokens", extra="data"),
    Package("subword-nmt", "subword_nmt", "corpora in BPE", extra="data"),
    Package(
        "transformers", "transformers", "export, translate", least="5.14", extra="transformers"
    ),
    Package("safetensors", "safetensors", "export", extra="transformers"),
    Package("onnx", "onnx", "export --onnx", extra="onnx"),
    Package("onnxscript", "onnxscript", "export --onnx", extra="onnx"),
    Package("onnxruntime", "onnxruntime", "export --onnx", extra="onnx"),
)
BESIDE = (
    Package("triton", "triton", "kernels on a GPU", least="3.3"),
    Package("unbabel-comet", "comet", "score --comet"),
    Package("tensorboard", "tensorboard", "--tensorboard-logdir"),
    Package("wandb", "wandb", "--wandb-project"),
)


@dataclass(frozen=True)
class Finding:
    """status: OK, MISSING, BROKEN or OPTIONAL; remedy: what to do, if there is anything"""

    what: str
    found: str
    status: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add("--json", "also write the findings to this file", type=Path)


def run(args: argparse.Namespace) -> None:
    check_outputs({"--json": args.json})
    findings = []
    for one in examine():
        findings.append(one)
        print(f"{one.what:<22}  {one.status:<13}  {one.found}".rstrip(), flush=True)
    if any(one.what == "fairseq" and one.status == OK for one in findings):
        from fairseq_memattn.host.patches import table

        print("\nReplaced in fairseq, and what for:")
        for name, reason, optional, what in table():
            print(f"{reason:<11}  {name}{' (optional)' * optional}: {what}")
    remedies = dict.fromkeys(one.remedy for one in findings if one.remedy)
    print("".join(f"\n{remedy}" for remedy in remedies), end="\n" if remedies else "")
    if args.json:
        write_json(args.json, [asdict(one) for one in findings])
    wrong = [one.what for one in findings if one.status in (MISSING, BROKEN)]
    if wrong:
        raise ValueError(f"missing or not working: {', '.join(wrong)}")


def examine() -> Iterator[Finding]:
    """All findings, in the order in which later ones depend on earlier ones."""
    import fairseq_memattn

    python = f"{platform.python_version()}, {sys.executable}"
    if not FAIRSEQ_RUNS:
        python += "; fairseq needs 3.11 or 3.12, without it there are no models to train"
    yield Finding("Python", python, OK)
    user_dir = f"--user-dir {fairseq_memattn.__path__[0]}"
    yield Finding("fairseq-memattn", f"{fairseq_memattn.__version__}, {user_dir}", OK)
    torch_works = torch()
    yield torch_works
    for package in REQUIRED:
        if FAIRSEQ_RUNS or package != HYDRA:
            yield examined(package, MISSING, f"{package.name}: {installation(package)}")
    fairseq_works = fairseq()
    yield fairseq_works
    if torch_works.status == OK:
        yield from (
            checked(", ".join(("layer", *case)), partial(layer, *case)) for case in layers()
        )
        if len(layers()) > 1:
            yield checked("products of kernels", products)
    if fairseq_works.status == OK:
        yield checked("training", training)
    for package in (*IN_EXTRAS, *BESIDE):
        remedy = f"for {package.purpose}: {installation(package)}"
        yield examined(package, OPTIONAL, remedy)


def torch() -> Finding:
    remedy = f"torch: pip install {TORCH}"
    try:
        module: Any = import_module("torch")
    except Exception as error:
        return failed("torch", "torch", error, remedy)
    cuda = module.cuda.is_available()
    count = module.cuda.device_count() if cuda else 0
    gpus = ", ".join(module.cuda.get_device_name(number) for number in range(count))
    threads = f"{module.get_num_threads()} threads"
    found = f"{module.__version__}, {threads}, GPU: {gpus or 'none'}"
    if below(module.__version__, "2.6"):
        return Finding("torch", f"{found}; must be 2.6 or newer", BROKEN, remedy)
    return Finding("torch", found, OK)


def fairseq() -> Finding:
    import fairseq_memattn
    from fairseq_memattn.host.installation import check_environment

    remedy = f"fairseq: {INSTALL}"
    if find_spec("fairseq") is None:
        return Finding("fairseq", "", MISSING if FAIRSEQ_RUNS else OPTIONAL, remedy)
    try:
        check_environment()
        fairseq_memattn.register()
        from fairseq_memattn.cli.shared.architectures import architectures

        count = len(architectures())
    except Exception as error:
        return failed("fairseq", "fairseq", error, remedy)
    return Finding("fairseq", f"{version_of('fairseq-fixed')}, {count} architectures", OK)


def installation(package: Package) -> str:
    """The command that installs a package, with what else its extra has."""
    extra = f"fairseq-memattn[{package.extra}]" if package.extra else requirement(package)
    return f"pip install '{extra}'"


def remedy_for(module: str) -> str:
    """The command that installs what is imported by this name, or how to find it."""
    for package in (*REQUIRED, *IN_EXTRAS, *BESIDE):
        if package.module == module:
            return installation(package)
    return "memattn doctor says how to install it"


def examined(package: Package, absent: str, remedy: str) -> Finding:
    """Imports a package. absent: the status if there is none"""
    try:
        import_module(package.module)
    except ModuleNotFoundError as error:
        if error.name == package.module:
            return Finding(package.name, f"for {package.purpose}", absent, remedy)
        return failed(package.name, package.module, error, remedy)
    except Exception as error:
        return failed(package.name, package.module, error, remedy)
    found = version_of(package.name)
    if package.least and below(found, package.least):
        found = f"{found}; must be {package.least} or newer"
        return Finding(package.name, found, BROKEN, remedy)
    return Finding(package.name, found, OK)


def failed(what: str, module: str, error: Exception, remedy: str) -> Finding:
    """What does not import: it is missing, or fails."""
    if isinstance(error, ModuleNotFoundError) and error.name == module:
        return Finding(what, "", MISSING, remedy)
    reason = str(error).partition("\n")[0]
    return Finding(what, f"{type(error).__name__}: {reason}", BROKEN, remedy)


def checked(what: str, check: Callable[[], str]) -> Finding:
    """Runs a check, which returns what it has found. A terminal shows which one runs."""
    if sys.stdout.isatty():
        print(f"{what:<22}  ...", end="\r", flush=True)
    try:
        return Finding(what, check(), OK)
    except Exception as error:
        return failed(what, "", error, "")


def layers() -> list[tuple[str, ...]]:
    """The devices, and the dtypes beside float32, in which `layer` is checked."""
    import torch

    gpu = [("cuda",), ("cuda", "bfloat16"), ("cuda", "float16")]
    return [("cpu",), *(gpu if torch.cuda.is_available() else [])]


def layer(device: str, dtype: str = "float32") -> str:
    """Compares causal ABC, forward and backward, with its slow form in double precision."""
    import torch

    from fairseq_memattn.attention import abc_attention, chosen_backend, use_backend

    generator = torch.Generator().manual_seed(1)
    shapes = [(1, 2, 1100, 16)] * 3 + [(1, 2, 1100, 80)]  # more than one chunk
    kind, allowed = getattr(torch, dtype), 1e-3 if dtype == "float32" else 0.03
    inputs = [torch.randn(shape, generator=generator).to(kind) for shape in shapes]
    on_device = [given.to(device).requires_grad_() for given in inputs]
    exact = [given.double().requires_grad_() for given in inputs]
    found = causal(abc_attention, on_device)
    with use_backend("naive"):
        expected = causal(abc_attention, exact)
    differences = [
        (mine.cpu().double() - theirs).abs().max() / theirs.abs().max()
        for mine, theirs in zip(found, expected, strict=True)
    ]
    largest = float(torch.stack(differences).max())  # of NaN it is NaN, which Python's max is not
    if not largest < allowed:
        raise ArithmeticError(f"differs by {largest:.1e} from its slow form")
    return f"{chosen_backend(on_device[0], 80)}, at most {largest:.0e} from its slow form"


def products() -> str:
    """How the kernels of the GPU form products in bfloat16, by their test of themselves."""
    import torch

    from fairseq_memattn.attention.ops.common import HAS_TRITON

    if not HAS_TRITON:
        return "no kernels without Triton"
    from fairseq_memattn.attention.ops.abc.triton.selftest import may_use_wgmma

    device = torch.device("cuda", torch.cuda.current_device())
    wrong = [str(slots) for slots in (32, 64, 128) if not may_use_wgmma(device, 64, slots)]
    if wrong:
        return f"slower ones for {', '.join(wrong)} slots, as this compiler's are wrong"
    return "of 64 rows, which are right"


def causal(attend: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """The output, and the gradients of its sum of squares."""
    import torch

    q, k, v, log_alpha = inputs
    output = attend(q, k, v, log_alpha, causal=True)
    return [output.detach(), *torch.autograd.grad(output.square().sum(), inputs)]


def training() -> str:
    """Trains a small language model on generated text, by fairseq's commands."""
    import fairseq_memattn

    start, arch = time.perf_counter(), "abc_mlp_transformer_lm"
    with TemporaryDirectory(prefix="memattn-doctor-") as folder:
        for split in ("train", "valid"):
            lines = (f"w{i % 7} w{i % 5} w{i % 3}\n" for i in range(200))
            Path(folder, split).write_text("".join(lines), "utf-8")
        texts = "--only-source --trainpref train --validpref valid --destdir bin"
        sizes = "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 16"
        call(folder, "preprocess", *texts.split())
        flags = f"bin --task language_modeling --arch {arch} {sizes} --decoder-attention-heads 2"
        flags += (
            " --optimizer adam --tokens-per-sample 32 --max-tokens 256 --max-update 2 --no-save"
        )
        call(folder, "train", *flags.split(), "--user-dir", fairseq_memattn.__path__[0])
    return f"two updates of {arch} by fairseq-train in {time.perf_counter() - start:.0f} s"


def call(folder: str, command: str, *flags: str) -> None:
    argv = [sys.executable, "-m", f"fairseq_cli.{command}", *flags]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise RuntimeError(f"fairseq-{command} ends with status {done.returncode}: {last}")


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "of unknown version"


def requirement(package: Package) -> str:
    return package.name + (f">={package.least}" if package.least else "")


def below(found: str, least: str) -> bool:
    """Whether a version is older; an unknown one is not."""
    numbers = [[int(part) for part in re.findall(r"\d+", text)[:3]] for text in (found, least)]
    return bool(numbers[0]) and numbers[0] < numbers[1]
