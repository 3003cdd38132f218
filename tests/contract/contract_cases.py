"""What the contract is checked for: every architecture and every control, as small models.

`CASES` has the flags of each. `test_registry.py` fails for an architecture, a control or a sparsity
that is registered and has no case.

The contract leaves out what draws random numbers while it decodes (`--sampling`). LSH draws its
rotations in training alone, from the seed, so that it is held to the contract like the others.
"""

import shlex
from dataclasses import dataclass

import pytest

POSITIONS = 100
ENCODER = "--encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 24"
ENCODER += " --encoder-attention-heads 2"
DECODER = ENCODER.replace("encoder", "decoder")
PAIRS = f"--max-source-positions {POSITIONS} --max-target-positions {POSITIONS}"
TEXT = f"--tokens-per-sample {POSITIONS} --sample-break-mode eos"

# What a case is of: the flags of its task.
KINDS = {
    "translation": f"--task translation {PAIRS}",
    "documents": f"--task document_translation --source-context 2 --target-context 2 {PAIRS}",
    "language_model": f"--task language_modeling {TEXT}",
    "masked": f"--task masked_lm --criterion masked_lm {TEXT} --max-positions {POSITIONS}",
}
TRANSLATING = ("translation", "documents")
SIZES = {
    "translation": f"{ENCODER} {DECODER}",
    "documents": f"{ENCODER} {DECODER}",
    "language_model": DECODER,
    "masked": ENCODER,
}

# name of a control or a kernel attention: its flags
CONTROLS = {
    "mlp": "",
    "gated": "",
    "linformer": "",
    "random": "",
    "clustering": "",
    "compressive": "",
    "global": "--abc-stride 24",
    "local_global": "--abc-stride 24 --abc-local-window 3",
    "window": "",
    "routed": "",
    "routed_gated": "",
    "sinks": "",
    "local_mlp": "",
    "dilated": "--abc-stride 3",
    "strided": "--abc-stride 3",
    "workspace": "",
    "elu": "",
    "rfa": "",
    "t2r": "",
}
KERNELS = ("elu", "rfa", "t2r")
ENCODER_SIZES = ("gmat_genbert",)  # whose decoder consists of the encoder's layers
ENCODERS_ONLY = ("workspace",)  # without a causal form

GMAT = "--gmat-chunk 4 --gmat-memory 3"
# name of a sparsity: its flags
SPARSITIES = {
    "chunks": GMAT,
    "window": f"{GMAT} --gmat-sparsity window --gmat-window 2",
    "lsh": f"{GMAT} --gmat-sparsity lsh --gmat-lsh-rounds 2",
}

# architecture: what is special about a model of it, and its flags
T5MEM = {
    "t5mem_v1": {"": ""},
    "t5mem_v2": {"": ""},
    "t5mem_v3": {"": "", "by layer": "--t5mem-selector-query layer"},
    "t5mem_v4": {
        "as the paper": "--t5mem-sequence-positions none --t5mem-selector-bias none "
        "--t5mem-selector-query layer"
    },
    "t5mem_ws": {"": ""},
    "t5mem_ws_wma": {"": ""},
}


@dataclass(frozen=True)
class Case:
    """kind: of `KINDS`; variant: what is special about this model of its architecture."""

    arch: str
    kind: str
    flags: str = ""
    variant: str = ""

    @property
    def draws(self) -> bool:
        """Whether training draws random numbers for each batch, as dropout does.

        RFA draws its features, and LSH its rotations.
        """
        return self.arch.startswith("rfa_") or "lsh" in self.flags

    @property
    def name(self) -> str:
        parts = [self.arch, self.variant.replace(" ", "_"), self.kind]
        return "-".join(filter(None, parts))

    def argv(self, data: object) -> list[str]:
        """The arguments of fairseq-train for the model and its data."""
        sizes = ENCODER if self.arch in ENCODER_SIZES else SIZES[self.kind]
        flags = f"{KINDS[self.kind]} {sizes} --arch {self.arch} {self.flags}"
        return [str(data), *shlex.split(flags)]


def _of_controls() -> list[Case]:
    cases = []
    for name, own in CONTROLS.items():
        prefix = name if name in KERNELS else f"abc_{name}"
        causal = "--abc-causal-slots 6" if name not in ENCODERS_ONLY else "--abc-causal-slots 0"
        encoder = f"{own} --abc-encoder-slots 6"
        pairs = f"{encoder} {causal} --abc-cross-slots 6"
        cases += [Case(f"{prefix}_transformer", kind, pairs) for kind in TRANSLATING]
        cases.append(Case(f"{prefix}_roberta", "masked", encoder))
        if name not in ENCODERS_ONLY:
            cases.append(Case(f"{prefix}_transformer_lm", "language_model", f"{own} {causal}"))
    return cases


def _of_gmat() -> list[Case]:
    decoders = {
        "chunks": "",
        "window": "--gmat-decoder-control mlp --abc-causal-slots 6 --abc-cross-slots 6",
        "lsh": "--gmat-decoder-control gated --abc-causal-slots 6",
    }
    cases = []
    for name, flags in SPARSITIES.items():
        cases.append(Case("gmat_bert", "masked", flags, name))
        pairs = f"{flags} {decoders[name]}"
        cases += [Case("gmat_transformer", kind, pairs, name) for kind in TRANSLATING]
    compressed = f"{GMAT} --gmat-compress-after 1"
    untied = f"{GMAT} --gmat-memory-projections qkvo"
    cases.append(Case("gmat_bert", "masked", compressed, "compressed"))
    cases.append(Case("gmat_bert", "masked", untied, "untied"))
    cases += [Case("gmat_genbert", kind, GMAT) for kind in TRANSLATING]
    return cases


def _of_t5() -> list[Case]:
    cases = [Case("t5", kind) for kind in TRANSLATING]
    for arch, variants in T5MEM.items():
        cases += [Case(arch, "documents", flags, name) for name, flags in variants.items()]
    return cases


LLAMA = """--abc-kv-heads 1 --abc-controls '[{"control": "local_mlp", "slots": 8}]'"""
MARIAN = "--abc-marian --abc-output-bias --activation-fn swish"
CASES = [*_of_controls(), *_of_gmat(), *_of_t5(), Case("abc_llama", "language_model", LLAMA)]
CASES += [Case("pretrained_transformer", kind, MARIAN) for kind in TRANSLATING]


def each_case(*kinds: str, every: int = 0, first: int = 0) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize` of `case` over the cases of some kinds, or of all.

    every, first: which of them run without --contract: one in `every`, from number `first` on; 0 is
        one of each architecture
    """
    chosen = [case for case in CASES if not kinds or case.kind in kinds]
    archs: set[str] = set()
    params = []
    for number, case in enumerate(chosen):
        runs = (number - first) % every == 0 if every else case.arch not in archs
        archs.add(case.arch)
        marks = [] if runs else [pytest.mark.contract]
        params.append(pytest.param(case, id=case.name, marks=marks))
    return pytest.mark.parametrize("case", params)
