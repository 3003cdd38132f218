"""The configuration of encoder-decoders, language models and encoders with bounded memories."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from transformers import PreTrainedConfig

from fairseq_memattn.transformers.arguments import NEW, OLD

POSITIONS = ("sinusoidal", "marian", "learned", "none")


@dataclass
class ControlConfig:
    """The control of one kind of attention, in all layers of a stack.

    name: of a registered control; slots: M; heads: of the control, 1 if all heads share one
    tied: whether the layers share one control
    max_positions: the longest sequence; options: those of the control
    """

    name: str
    slots: int
    heads: int = 1
    tied: bool = True
    max_positions: int = 1024
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class StackConfig:
    """An encoder or a decoder.

    vocab_size: tokens of its dictionary; pad_token_id: the one that is padding
    embed_dim: E of the layers; input_dim, output_dim: of the embeddings and of the outputs
    source_dim: E of the encoder, for cross attention; 0 without cross attention
    norm_first: normalises the inputs of the sublayers, not their outputs
    norm_embeddings, norm_output: further layer norms
    scale_embeddings: multiplies embeddings by sqrt(embed_dim)
    positions: "sinusoidal", "marian", "learned" or "none"; max_positions: the longest sequence
    start_token_id: a token that has the embedding of padding, in the models of Marian
    output_bias: of the projection to logits
    causal, cross, full: the controls of a decoder's and of an encoder's attention; softmax
        attention where None
    adaptive_input, adaptive_softmax: cutoffs and factor; None without
    """

    vocab_size: int
    pad_token_id: int = 1
    layers: int = 6
    embed_dim: int = 512
    ffn_dim: int = 2048
    heads: int = 8
    input_dim: int = 512
    output_dim: int = 512
    source_dim: int = 0
    activation: str = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    norm_first: bool = False
    norm_embeddings: bool = False
    norm_output: bool = False
    scale_embeddings: bool = True
    positions: str = "sinusoidal"
    max_positions: int = 1024
    start_token_id: int | None = None
    output_bias: bool = False
    causal: ControlConfig | None = None
    cross: ControlConfig | None = None
    full: ControlConfig | None = None
    adaptive_input: dict[str, Any] | None = None
    adaptive_softmax: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.positions not in POSITIONS:
            raise ValueError(
                f"`positions` must be one of {', '.join(POSITIONS)}, but is {self.positions!r}."
            )
        for name in ("causal", "cross", "full"):
            given = getattr(self, name)
            if isinstance(given, dict):
                setattr(self, name, _checked(ControlConfig, name, given))


def _checked(cls: Any, name: str, given: dict[str, Any]) -> Any:
    unknown = given.keys() - {entry.name for entry in fields(cls)}
    if unknown:
        raise ValueError(f"`{name}` of the configuration has no `{min(unknown)}`.")
    return cls(**given)


class BoundedTransformerConfig(PreTrainedConfig):
    """fairseq's transformer, its softmax attention replaced by attention to bounded memories.

    encoder_stack, decoder_stack: the fields of a `StackConfig`; None without that stack
    gmat: the fields of a `GMATConfig`, for an encoder with a global memory in the place of
        `encoder_stack`
    share_all_embeddings: of the encoder, the decoder and the outputs
    share_decoder_embeddings: of the decoder and the outputs
    generation_limits: `max_len_a`, `max_len_b` and `max_target_positions` of `generate`; see
        `FairseqSearch`

    Raises ValueError for a field that a `StackConfig` does not have.
    """

    model_type = "memattn_transformer"
    keys_to_ignore_at_inference = [OLD, NEW]

    encoder_stack: dict[str, Any] | None = None
    decoder_stack: dict[str, Any] | None = None
    gmat: dict[str, Any] | None = None
    share_all_embeddings: bool = False
    share_decoder_embeddings: bool = False
    generation_limits: dict[str, Any] | None = None
    vocab_size: int = 0
    hidden_size: int = 0
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = None
    use_cache: bool = True
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        for name in ("encoder_stack", "decoder_stack"):
            given = getattr(self, name)
            if isinstance(given, StackConfig):
                setattr(self, name, asdict(given))
        stack = self.decoder_stack or self.encoder_stack
        if stack is not None:
            name = "encoder_stack" if self.decoder_stack is None else "decoder_stack"
            sizes: StackConfig = _checked(StackConfig, name, stack)
            self.vocab_size, self.hidden_size = sizes.vocab_size, sizes.embed_dim
            self.num_hidden_layers, self.num_attention_heads = sizes.layers, sizes.heads
        super().__post_init__(**kwargs)

    def stack(self, name: str) -> StackConfig:
        """The `StackConfig` of "encoder" or "decoder". Raises ValueError if there is none."""
        given = getattr(self, f"{name}_stack")
        if given is None:
            raise ValueError(f"`{name}_stack` of the configuration must be given for this model.")
        return _checked(StackConfig, f"{name}_stack", given)
