"""The rivals of the ABC paper (table 2b): kernel attention, in the place of a control."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairseq_memattn.attention.controls.base import Control, ControlOptions, drop_writes
from fairseq_memattn.attention.kernels import (
    ELUFeatures,
    FeatureMap,
    Gate,
    RandomFeatures,
    T2RFeatures,
)
from fairseq_memattn.attention.ops.kernel.chunked import (
    KernelState,
    kernel_attention,
    kernel_read,
    kernel_step,
    kernel_write,
)


class KernelControl(Control):
    """Attention whose exponential is the inner product of features, as many as there are slots.

    out = sum_j phi(q) . phi(k_j) v_j / sum_j phi(q) . phi(k_j). Every layer and head has features
    of its own. `vectors` are phi(k), and `weights` phi(q) over its normaliser: their products
    are the weights of the tokens.
    """

    tied: ClassVar[bool] = False

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        self.features = self.features_of(options)
        self.gate: Gate | None = None

    @abstractmethod
    def features_of(self, options: ControlOptions) -> FeatureMap:
        """The features of the options' sizes."""

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        *,
        causal: bool,
        key_padding_mask: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        if self.training:
            self.features.redraw()
        phi_k = self.features(k, is_query=False)
        return kernel_attention(
            self.features(q, is_query=True),
            drop_writes(phi_k, dropout, 0.0),
            v,
            causal=causal,
            key_padding_mask=key_padding_mask,
            log_gate=self._log_gate(x) if causal else None,
            floor=self.features.floor,
        )

    def step(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        state: Any,
        *,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        return kernel_step(
            self.features(q, is_query=True),
            self.features(k, is_query=False),
            v,
            state,
            key_padding_mask=key_padding_mask,
            log_gate=self._log_gate(x),
            floor=self.features.floor,
        )

    def write(self, k: Tensor, v: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        return kernel_write(self.features(k, is_query=False), v, key_padding_mask)

    def read(self, q: Tensor, state: KernelState) -> Tensor:
        return kernel_read(self.features(q, is_query=True), state, floor=self.features.floor)

    def vectors(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        phi: Tensor = self.features(k, is_query=False)
        if key_padding_mask is None:
            return phi
        return phi.masked_fill(key_padding_mask[:, None, :, None], 0.0)

    def weights(self, q: Tensor, state: KernelState) -> Tensor:
        size = state.normaliser.shape[2]
        units = torch.eye(size, dtype=state.values.dtype, device=q.device)
        units = units.expand(*state.normaliser.shape[:2], -1, -1)
        return self.read(q, KernelState(units, state.normaliser))

    def _log_gate(self, x: Tensor) -> Tensor | None:
        return None if self.gate is None else self.gate(x)


class ELUControl(KernelControl):
    """Katharopoulos et al. (2020): features elu(x) + 1, as many as a head has dimensions."""

    def features_of(self, options: ControlOptions) -> FeatureMap:
        return ELUFeatures(options.head_dim)


class RFAControl(KernelControl):
    """Peng et al. (2021): random features of the Gaussian kernel; in causal attention, on demand,
    with their gate, which forgets."""

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        if options.gate:
            self.gate = Gate(options.embed_dim, options.attention_heads)

    def features_of(self, options: ControlOptions) -> FeatureMap:
        return RandomFeatures(
            options.attention_heads, options.head_dim, options.slots, seed=options.seed
        )


class T2RControl(KernelControl):
    """Kasai et al. (2021): learned features relu(W x + b), for finetuning a trained transformer."""

    def features_of(self, options: ControlOptions) -> FeatureMap:
        return T2RFeatures(options.attention_heads, options.head_dim, options.slots)
