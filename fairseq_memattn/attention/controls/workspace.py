"""Shared workspace and Luna (ABC paper, appendix A.5): a memory that attends to the sequence."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from fairseq_memattn.attention.controls.base import NormalisedControl, Tokens
from fairseq_memattn.attention.controls.options import ControlOptions, Sizes
from fairseq_memattn.attention.controls.registry import register_control
from fairseq_memattn.attention.ops.common import accumulation_dtype, omit_padding, over_tokens


@register_control("workspace")
class WorkspaceControl(NormalisedControl):
    """phi_i = softmax(X~ X^T)[:, i], with X~ the memory of the layer below (equation 16).

    The query and key projections, which the paper omits, have a head's share of the model size
    each: log alpha = (W_q X~) . (W_k x) / sqrt(size). The memory of the lowest layer is learned.
    Each layer passes X~ + [phi^T W_v x] of its heads, layer-normalised, to the next (Ma et al.,
    "Luna", 2021) through `shared`; without `shared` every layer begins with its learned memory, and
    so does a layer below which no layer has a workspace.
    The softmax runs over the whole sequence, and so there is no causal form.
    """

    can_carry: ClassVar[bool] = False  # the memory is passed from layer to layer
    passes_memory: ClassVar[bool] = True
    causal_refusal = (
        "its control vectors are computed from the whole sequence and would reveal the future"
    )

    def __init__(self, sizes: Sizes, options: ControlOptions) -> None:
        super().__init__(sizes, options)
        size = sizes.embed_dim
        if size % self.heads:
            raise ValueError(
                f"`source_dim` must be a multiple of the {self.heads} heads for a workspace, "
                f"but is {size} instead."
            )
        self.memory = nn.Parameter(torch.empty(self.slots, size))
        nn.init.normal_(self.memory)
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(size, size, bias=False) for _ in range(3)
        )

    def log_alpha(self, k: Tensor, tokens: Tokens) -> Tensor:
        x, shared = tokens.x, tokens.shared
        memory = self.memory.expand(x.shape[0], -1, -1)
        if shared is None:
            return self.look(memory, x)
        for below in range(shared.layer):
            # Layers with workspaces of their own pass the memory on as well.
            memory = shared.values.get((WorkspaceControl, below), memory)
        log_alpha = self.look(memory, x)
        written = omit_padding(log_alpha, tokens.key_padding_mask, -torch.inf)
        phi = over_tokens(written).nan_to_num()
        shared.values[WorkspaceControl, shared.layer] = self.update(memory, x, phi)
        return log_alpha

    def look(self, memory: Tensor, x: Tensor) -> Tensor:
        """log alpha (B, heads, S, M) of a memory (B, M, E) that attends to x (B, S, E)."""
        q, k = self.by_head(self.q_proj(memory)), self.by_head(self.k_proj(x))
        logits: Tensor = k @ q.transpose(2, 3)
        logits = logits.to(accumulation_dtype(logits))
        return logits * float(q.shape[-1] ** -0.5)

    def update(self, memory: Tensor, x: Tensor, phi: Tensor) -> Tensor:
        """The memory of the next layer, (B, M, E)."""
        found = phi.transpose(2, 3) @ self.by_head(self.v_proj(x)).to(phi.dtype)
        memory = memory + found.transpose(1, 2).flatten(2).to(memory.dtype)
        return layer_norm(memory, memory.shape[-1:])
