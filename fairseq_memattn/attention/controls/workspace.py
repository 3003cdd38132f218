"""Shared workspace and Luna (ABC paper, appendix A.5): a memory that looks at the sequence."""

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from fairseq_memattn.attention.controls.base import Control, ControlOptions, NormalisedControl
from fairseq_memattn.attention.ops.state import accumulation_dtype


class WorkspaceControl(NormalisedControl):
    """phi_i = softmax(X~ X^T)[:, i], X~ the memory of the layer below (equation 16).

    With the query and key projections that the paper leaves out, a head's share of the model size
    each, log alpha = (W_q X~) . (W_k x) / sqrt(size). The memory of the lowest layer is learned;
    a layer hands on X~ + [phi^T W_v x] of its heads, layer-normalised, after Ma et al., "Luna"
    (2021). The softmax is over the whole sequence, hence no causal form.
    """

    causal_refusal = (
        "its control vectors are made from the whole sequence and would tell of the future"
    )

    def __init__(self, options: ControlOptions) -> None:
        super().__init__(options)
        size = options.embed_dim
        self.memory = nn.Parameter(torch.empty(self.slots, size))
        nn.init.normal_(self.memory)
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(size, size, bias=False) for _ in range(3)
        )

    def for_layer(self, number: int, below: dict[int, Tensor]) -> Control:
        return WorkspaceLayer(self, number, below)

    def log_alpha(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return self.look(self.memory.expand(x.shape[1], -1, -1), x)

    def look(self, memory: Tensor, x: Tensor) -> Tensor:
        """log alpha (B, heads, S, M) of a memory (B, M, E) that sees x (S, B, E)."""
        q, k = self._by_head(self.q_proj(memory)), self._by_head(self.k_proj(x.transpose(0, 1)))
        logits: Tensor = k @ q.transpose(2, 3)
        logits = logits.to(accumulation_dtype(logits))
        return logits * float(q.shape[-1] ** -0.5)

    def update(self, memory: Tensor, x: Tensor, phi: Tensor) -> Tensor:
        """What is handed on, (B, M, E)."""
        found = phi.transpose(2, 3) @ self._by_head(self.v_proj(x.transpose(0, 1))).to(phi.dtype)
        memory = memory + found.transpose(1, 2).flatten(2).to(memory.dtype)
        return layer_norm(memory, memory.shape[-1:])

    def _by_head(self, x: Tensor) -> Tensor:
        """(B, length, E) as (B, heads, length, E / heads)."""
        heads: Tensor = x.unflatten(2, (self.heads, -1))
        return heads.transpose(1, 2)


class WorkspaceLayer(NormalisedControl):
    """A workspace as one layer uses it.

    below: the memories that the layers have handed on, by their numbers
    """

    def __init__(self, workspace: WorkspaceControl, number: int, below: dict[int, Tensor]) -> None:
        super().__init__(ControlOptions(0, workspace.slots, workspace.heads))
        self._workspace = (workspace,)  # in a tuple: whoever made it registers it
        self.number, self.below = number, below

    def log_alpha(self, k: Tensor, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        (workspace,) = self._workspace
        if self.number == 0:
            memory = workspace.memory.expand(x.shape[1], -1, -1)
        else:
            memory = self.below[self.number - 1]
        log_alpha = workspace.look(memory, x)
        if key_padding_mask is not None:
            log_alpha = log_alpha.masked_fill(key_padding_mask[:, None, :, None], -torch.inf)
        phi = log_alpha.softmax(dim=2).nan_to_num()
        self.below[self.number] = workspace.update(memory, x, phi)
        return log_alpha
