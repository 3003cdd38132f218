"""The configuration of T5 and T5Mem in transformers' format."""

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from fairseq_memattn.networks.t5_layers import T5Sizes
from fairseq_memattn.networks.t5mem_encoder import (
    QUERIES,
    SELECTOR_BIASES,
    SEQUENCE_POSITIONS,
    T5MemSizes,
)
from fairseq_memattn.transformers.arguments import NEW, OLD

# The options by the networks' names: with the side in front, of both sides, and of memory slots.
OF_SIDE = {
    "layers": "layers",
    "embed_dim": "embed_dim",
    "ffn_dim": "ffn_dim",
    "heads": "attention_heads",
    "head_dim": "head_dim",
}
OF_BOTH = {
    "dropout": "dropout",
    "buckets": "position_buckets",
    "max_distance": "max_distance",
    "scale_embedding": "scale_embedding",
    "scale_positions": "scale_positions",
    "pad": "pad_token_id",
}
OF_SLOTS = {
    "slots": "slots",
    "sequences": "max_sequences",
    "separate_slot_output": "separate_slot_output",
    "separate_slot_ffn": "separate_slot_ffn",
    "mem_attention": "mem_attention",
    "selector": "selector",
    "selector_query": "selector_query",
    "sequence_positions": "sequence_positions",
    "selector_bias": "selector_bias",
    "separator": "context_separator_id",
}


@strict
class T5MemConfig(PreTrainedConfig):
    """The sizes and the design of a T5 or a T5Mem.

    vocab_size: symbols of the target, and of the source unless `source_vocab_size` is set
    encoder_layers, encoder_embed_dim, encoder_ffn_dim, encoder_attention_heads, encoder_head_dim:
        of the encoder; the decoder has its own
    position_buckets, max_distance: of relative positions
    dropout: of states, attention weights and feed-forward layers alike
    share_embeddings: whether source and target have one embedding table. The decoder's input and
        output share a table in any case
    scale_embedding: whether the tables are stored multiplied by E^-1/2
    scale_positions: whether the position biases are stored multiplied by E^-1/2
    max_source_positions, max_target_positions: fairseq's limits. Positions are relative, so that
        this model works beyond them
    slots: M, memory tokens in front of each sequence; 0 is a T5 without memory, which takes one
        sequence and ignores the options below, which are those of `networks.T5MemSizes`
    max_sequences, context_separator_id: its `sequences` and `separator`

    Raises StrictDataclassError of huggingface_hub, whose message has the reason, for a value of
    another type, an unknown choice, and buckets that do not fit together.
    """

    model_type = "memattn_t5mem"
    # The last two have sizes that differ from batch to batch.
    keys_to_ignore_at_inference = [OLD, NEW, "encoder_last_hidden_state", "selection"]
    attribute_map = {
        "hidden_size": "decoder_embed_dim",
        "num_hidden_layers": "decoder_layers",
        "num_attention_heads": "decoder_attention_heads",
    }

    vocab_size: int = 32128
    source_vocab_size: int | None = None
    encoder_layers: int = 2
    encoder_embed_dim: int = 512
    encoder_ffn_dim: int = 2048
    encoder_attention_heads: int = 8
    encoder_head_dim: int = 64
    decoder_layers: int = 2
    decoder_embed_dim: int = 512
    decoder_ffn_dim: int = 2048
    decoder_attention_heads: int = 8
    decoder_head_dim: int = 64
    position_buckets: int = 32
    max_distance: int = 128
    dropout: float | int = 0.1
    share_embeddings: bool = True
    scale_embedding: bool = False
    scale_positions: bool = False
    max_source_positions: int = 1024
    max_target_positions: int = 1024
    slots: int = 2
    max_sequences: int = 8
    separate_slot_output: bool = True
    separate_slot_ffn: bool = True
    mem_attention: bool = True
    selector: bool = True
    selector_query: str = QUERIES[0]
    sequence_positions: str = SEQUENCE_POSITIONS[0]
    selector_bias: str = SELECTOR_BIASES[0]
    context_separator_id: int | None = None
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = True
    bos_token_id: int | None = 0
    pad_token_id: int = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int = 0

    def validate_architecture(self) -> None:
        """Called by `strict` when the configuration is made."""
        try:
            self.sizes("encoder"), self.sizes("decoder")
        except ValueError as error:
            raise ValueError(str(error).replace("`buckets`", "`position_buckets`")) from None

    def sizes(self, side: str) -> T5Sizes:
        """The sizes of a side, "encoder" or "decoder"; `T5MemSizes` with memory slots."""
        symbols = self.source_vocab_size if side == "encoder" else None
        names = {ours: f"{side}_{name}" for ours, name in OF_SIDE.items()} | OF_BOTH
        if self.slots:
            names |= OF_SLOTS
        return (T5MemSizes if self.slots else T5Sizes)(
            vocab_size=symbols or self.vocab_size,
            source_dim=self.encoder_embed_dim,
            **{ours: getattr(self, name) for ours, name in names.items()},
        )
