"""Whatever is registered has a case, so that a new architecture or control needs one."""

from contract_cases import CASES, CONTROLS, ENCODERS_ONLY, KERNELS, KINDS, SPARSITIES
from fairseq.models import ARCH_MODEL_REGISTRY

import fairseq_memattn
from fairseq_memattn.attention.controls import CONTROLS as REGISTERED
from fairseq_memattn.attention.controls import KERNEL_ATTENTION
from fairseq_memattn.attention.nn.global_memory import SPARSITIES as OF_GMAT

fairseq_memattn.register()


def of_this_package(registered):
    """What other tests register is left out."""
    own = {name: cls for name, cls in registered.items() if is_own(cls)}
    controls = REGISTERED | KERNEL_ATTENTION
    return {n: c for n, c in own.items() if is_own(controls.get(getattr(c, "control", None), c))}


def is_own(cls):
    return cls.__module__.startswith("fairseq_memattn.")


def test_every_architecture_has_a_case():
    """Architectures of one class differ in their sizes; one of them stands for all."""
    with_case = {ARCH_MODEL_REGISTRY[case.arch] for case in CASES}
    archs = of_this_package(ARCH_MODEL_REGISTRY)
    assert [name for name, cls in archs.items() if cls not in with_case] == []


def test_every_encoder_decoder_translates_documents():
    archs = {kind: {case.arch for case in CASES if case.kind == kind} for kind in KINDS}
    assert archs["translation"] < archs["documents"]


def test_every_control_has_a_case():
    controls, kernels = of_this_package(REGISTERED), of_this_package(KERNEL_ATTENTION)
    assert CONTROLS.keys() == controls.keys() | kernels.keys()
    assert set(KERNELS) == kernels.keys()
    assert set(ENCODERS_ONLY) == {name for name, cls in controls.items() if cls.causal_refusal}


def test_every_sparsity_has_a_case():
    assert SPARSITIES.keys() == set(OF_GMAT)


def test_names_are_told_apart():
    assert len({case.name for case in CASES}) == len(CASES)
