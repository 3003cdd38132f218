"""Control strategies: how the tokens of a sequence are written into the slots of a memory.

A strategy is a file here and a line in `CONTROLS` (docs/controls.md).
"""

from fairseq_memattn.attention.controls.base import Control, ControlOptions
from fairseq_memattn.attention.controls.clustering import ClusteringControl
from fairseq_memattn.attention.controls.compressive import CompressiveControl
from fairseq_memattn.attention.controls.gated import GatedControl
from fairseq_memattn.attention.controls.global_tokens import GlobalControl
from fairseq_memattn.attention.controls.kernel import ELUControl, RFAControl, T2RControl
from fairseq_memattn.attention.controls.linformer import LinformerControl
from fairseq_memattn.attention.controls.local_global import LocalGlobalControl
from fairseq_memattn.attention.controls.mlp import MLPControl
from fairseq_memattn.attention.controls.random import RandomControl
from fairseq_memattn.attention.controls.windows import (
    DilatedControl,
    StridedControl,
    WindowControl,
)
from fairseq_memattn.attention.controls.workspace import WorkspaceControl

CONTROLS: dict[str, type[Control]] = {
    "mlp": MLPControl,
    "gated": GatedControl,
    "linformer": LinformerControl,
    "random": RandomControl,
    "clustering": ClusteringControl,
    "compressive": CompressiveControl,
    "global": GlobalControl,
    "local_global": LocalGlobalControl,
    "window": WindowControl,
    "dilated": DilatedControl,
    "strided": StridedControl,
    "workspace": WorkspaceControl,
}

# Kernel attention: no control of a bounded memory, but in the same place, for comparison.
RIVALS: dict[str, type[Control]] = {"elu": ELUControl, "rfa": RFAControl, "t2r": T2RControl}

__all__ = ["CONTROLS", "RIVALS", "Control", "ControlOptions"]
