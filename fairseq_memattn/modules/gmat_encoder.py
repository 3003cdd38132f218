"""GMAT's encoder as an encoder of fairseq: its flags, time first, and how it loads checkpoints."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from fairseq.models import FairseqEncoder
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.modules.abc_layers import check_dictionary, wrapped
from fairseq_memattn.modules.dropout import KeepsDropout, use_fairseq_dropout
from fairseq_memattn.modules.layout import time_first
from fairseq_memattn.networks import gmat
from fairseq_memattn.networks.blocks import move_to_end
from fairseq_memattn.networks.gmat_layers import GMATConfig
from fairseq_memattn.networks.positions import MAX_POSITIONS

logger = logging.getLogger(__name__)

# What fairseq has time first in the encoder's output.
TIME_FIRST = ("encoder_out", "encoder_states")


# The flags of the network's options, by what its messages say.
FLAGS = {
    "`sparsity`": "--gmat-sparsity",
    "`chunk_size`": "--gmat-chunk",
    "`window`": "--gmat-window",
    "`rounds`": "--gmat-lsh-rounds",
    "`buckets`": "--gmat-lsh-buckets",
    "`memory_slots`": "--gmat-memory",
    "`memory_positions`": "--gmat-memory-positions",
    "`compress_after`": "--gmat-compress-after",
    "`memory_layers`": "--gmat-memory-layers",
    "`num_hidden_layers`": "--encoder-layers",
    "`decoder_layers`": "--decoder-layers",
    "`position_embedding_type` must not be none": "--no-token-positional-embeddings does not work",
    " instead.": "",
}


@contextmanager
def told_by_flags() -> Iterator[None]:
    """Raises the network's errors as MemAttnError with the names of flags."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        for name, told in FLAGS.items():
            message = message.replace(name, told)
        raise MemAttnError(message) from None


def network_config(cfg: Any, embed_tokens: nn.Embedding) -> GMATConfig:
    """The network's configuration.

    cfg: fairseq's TransformerConfig, with the fields of `models.gmat_config.GMATConfig`
    """
    learned = {"qr": "blocks", "r": "remainders"}[str(cfg.gmat_positions)]
    positions = learned if cfg.encoder.learned_pos else "sinusoidal"
    assert embed_tokens.padding_idx is not None
    return GMATConfig(
        vocab_size=embed_tokens.num_embeddings,
        hidden_size=embed_tokens.embedding_dim,
        num_hidden_layers=cfg.encoder.layers,
        num_attention_heads=cfg.encoder.attention_heads,
        intermediate_size=cfg.encoder.ffn_embed_dim,
        hidden_act=str(cfg.activation_fn),
        hidden_dropout_prob=cfg.dropout,
        attention_probs_dropout_prob=cfg.attention_dropout,
        activation_dropout=float(cfg.activation_dropout or cfg.relu_dropout or 0.0),
        layerdrop=cfg.encoder.layerdrop or 0.0,
        layer_norm_eps=getattr(cfg, "gmat_layer_norm_eps", 1e-5),
        normalize_before=cfg.encoder.normalize_before,
        embedding_layer_norm=cfg.layernorm_embedding,
        scale_embedding=not cfg.no_scale_embedding,
        position_embedding_type="none" if cfg.no_token_positional_embeddings else positions,
        position_block=cfg.gmat_position_block,
        sparsity=str(cfg.gmat_sparsity),
        chunk_size=cfg.gmat_chunk,
        window=cfg.gmat_window,
        lsh_rounds=cfg.gmat_lsh_rounds,
        lsh_buckets=cfg.gmat_lsh_buckets,
        memory_slots=cfg.gmat_memory,
        memory_positions=cfg.gmat_memory_positions,
        memory_projections=str(cfg.gmat_memory_projections).replace("none", ""),
        compress_after=cfg.gmat_compress_after,
        memory_layers=cfg.gmat_memory_layers,
        pad_token_id=embed_tokens.padding_idx,
    )


class GMATEncoder(KeepsDropout, gmat.GMATEncoder, FairseqEncoder):
    """The network `GMATEncoder` as an encoder of fairseq, with fairseq's dropout and noise.

    cfg: fairseq's TransformerConfig, with the fields of `models.gmat_config.GMATConfig`
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> None:
        FairseqEncoder.__init__(self, dictionary)
        self.cfg = cfg
        with told_by_flags():
            config = network_config(cfg, embed_tokens)
        gmat.GMATEncoder.__init__(self, config, embed_tokens)
        self.register_buffer("version", torch.Tensor([3]))
        use_fairseq_dropout(self, "GMATEncoder")
        self.quant_noise = None
        noise, size = cfg.quant_noise, embed_tokens.embedding_dim
        if noise.pq > 0 and not cfg.adaptive_input:
            linear = nn.Linear(size, size, bias=False)
            self.quant_noise = quant_noise(linear, noise.pq, noise.pq_block_size)
            # The order of the optimiser's states.
            move_to_end(self, "layers", "layer_norm", "embed_positions", "memory_tokens")

    def build_layer(self, number: int) -> nn.Module:
        """Layer `number`, from 0."""
        layer, noise = super().build_layer(number), self.cfg.quant_noise
        use_fairseq_dropout(layer, "GMATEncoderLayer")
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                quant_noise(module, noise.pq, noise.pq_block_size)
        return wrapped(layer, self.cfg)

    def as_embedded(self, x: Tensor) -> Tensor:
        x = super().as_embedded(x)
        return x if self.quant_noise is None else self.quant_noise(x)

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Any = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        memory_words: Tensor | None = None,
    ) -> dict[str, list[Any]]:
        """src_tokens: (B, S), with padding anywhere
        memory_words: (B, Q), the `words` of `first_memory`

        Returns what fairseq's encoder returns, with padding where `src_tokens` has it, and
        `memory`, (B, M, E), after the last layer. `encoder_states` leaves out the layers that work
        on the memory alone.
        """
        padding = self.padding_of(src_tokens)
        states, memory, hidden = super().forward(
            src_tokens,
            padding,
            embeddings=token_embeddings,
            memory_words=memory_words,
            return_hidden=return_all_hiddens,
        )
        lengths = (~padding).sum(dim=1, dtype=torch.int32)
        return {
            "encoder_out": [time_first(states)],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [],
            "encoder_states": [time_first(state) for state in hidden],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths.unsqueeze(1)],
            "memory": [memory],
        }

    def reorder_encoder_out(self, encoder_out: dict[str, list[Any]], new_order: Tensor) -> Any:
        """fairseq's hook for beam search."""
        return {
            name: [
                x.index_select(int(name in TIME_FIRST), new_order) if isinstance(x, Tensor) else x
                for x in values
            ]
            for name, values in encoder_out.items()
        }

    def max_positions(self) -> int:
        """fairseq's hook: the longest source."""
        longest: int = self.cfg.max_source_positions
        return min(longest, MAX_POSITIONS) if self.cfg.encoder.learned_pos else longest

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        """fairseq's hook, called before a checkpoint is loaded."""
        check_dictionary(self, state_dict, name)
        self._take_memory(state_dict, name)
        return state_dict

    def _take_memory(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Keeps the first M memory vectors. Raises MemAttnError if the checkpoint has fewer."""
        key, slots = f"{name}.memory_tokens.weight", self.config.memory_slots
        learned = len(state_dict[key]) if key in state_dict else 0
        if slots > learned:
            raise MemAttnError(
                f"--gmat-memory {slots} is more than the {learned} memory tokens of the "
                "checkpoint; `memattn convert` adds a memory to a model without one"
            )
        if slots < learned:
            logger.warning(
                f"--gmat-memory {slots}: using the first {slots} of the checkpoint's "
                f"{learned} memory vectors"
            )
        if slots:
            state_dict[key] = state_dict[key][:slots]
            return
        for unused in [k for k in state_dict if k == key or ".self_attn.memory_proj." in k]:
            del state_dict[unused]
