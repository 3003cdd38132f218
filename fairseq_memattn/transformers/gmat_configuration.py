"""The configurations of GMAT's models."""

from typing import Any

from transformers import PreTrainedConfig

from fairseq_memattn.attention.nn.global_memory import SPARSITIES
from fairseq_memattn.errors import MemAttnError

POSITIONS = ("blocks", "sinusoidal", "none")


class GMATConfig(PreTrainedConfig):
    """The configuration of an encoder with a global memory, and of its heads.

    sparsity, chunk_size, window, lsh_rounds, lsh_buckets: see
        `fairseq_memattn.attention.nn.GlobalMemoryAttention`. `lsh_buckets` None depends on the
        longest sequence in the batch
    memory_slots: M, the number of memory vectors
    memory_positions: whether each memory vector has the position embedding of its part of the
        sequence, which is divided in M equal parts
    memory_projections: the projections that the attention which updates the memory does not share
        with the tokens' attention: "", "qkv" or "qkvo"
    position_embedding_type: "blocks", the sum of the vectors of p mod N and of p div N for the
        position p; "sinusoidal"; or "none"
    position_block: N, with "blocks"
    compress_after: N_c, the number of layers after which only the memory is kept; 0 keeps the
        tokens
    memory_layers: N_m, the number of layers after those that work on the memory alone
    normalize_before: layer norm before each block instead of after it
    embedding_layer_norm: layer norm of the embeddings
    scale_embedding: whether embeddings are multiplied by the square root of their size
    layerdrop: the probability that training skips a layer
    question_memory: whether the words of the question replace the first memory vectors in
        `GMATForQuestionAnswering`
    supporting_facts: whether `GMATForQuestionAnswering` tags supporting facts too

    Raises MemAttnError for values that do not fit together.
    """

    model_type = "memattn_gmat"

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    activation_dropout: float = 0.0
    layerdrop: float = 0.0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    normalize_before: bool = False
    embedding_layer_norm: bool = True
    scale_embedding: bool = False
    position_embedding_type: str = "blocks"
    position_block: int = 512
    max_position_embeddings: int = 2**15
    sparsity: str = "chunks"
    chunk_size: int | None = None
    window: int = 256
    lsh_rounds: int = 8
    lsh_buckets: int | None = None
    memory_slots: int = 64
    memory_positions: bool = False
    memory_projections: str = ""
    compress_after: int = 0
    memory_layers: int = 0
    question_memory: bool = False
    supporting_facts: bool = False
    bos_token_id: int = 0
    pad_token_id: int = 1
    eos_token_id: int = 2
    mask_token_id: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.position_embedding_type not in POSITIONS:
            raise MemAttnError(
                f"`position_embedding_type` must be one of {', '.join(POSITIONS)}, but is "
                f"{self.position_embedding_type}"
            )
        if self.memory_layers and not self.compress_after:
            raise MemAttnError(
                f"`memory_layers` must be 0 without `compress_after`, but is {self.memory_layers}"
            )
        if self.memory_positions and self.position_embedding_type == "none":
            raise MemAttnError("`position_embedding_type` must not be none with `memory_positions`")
        if self.compress_after:
            self._check_compression()

    def _check_compression(self) -> None:
        first = self.compress_after + self.memory_layers
        if not self.memory_slots:
            raise MemAttnError("`memory_slots` must not be 0 with `compress_after`")
        if self.position_embedding_type == "none":
            raise MemAttnError("`position_embedding_type` must not be none with `compress_after`")
        if first >= self.num_hidden_layers:
            raise MemAttnError(
                f"`compress_after` {self.compress_after} and `memory_layers` {self.memory_layers} "
                f"must leave some of the {self.num_hidden_layers} `num_hidden_layers`"
            )

    def attention_options(self, layer: int) -> dict[str, Any]:
        """The options of the `GlobalMemoryAttention` of a layer, counted from 0.

        Layers that work on the memory alone have softmax attention. The rotations of "lsh" in
        evaluation are those of the seed `layer`.
        """
        kind = "chunks" if self._is_memory_layer(layer) else self.sparsity
        options = {
            "chunk_size": self.chunk_size,
            "window": self.window,
            "rounds": self.lsh_rounds,
            "buckets": self.lsh_buckets,
            "seed": layer,
        }
        return {
            "sparsity": kind,
            "memory_projections": self._memory_projections(layer),
            "dropout": self.attention_probs_dropout_prob,
            **{name: options[name] for name in SPARSITIES.get(kind, ())},
        }

    def _is_memory_layer(self, layer: int) -> bool:
        return self.compress_after <= layer < self.compress_after + self.memory_layers

    def _memory_projections(self, layer: int) -> str:
        """Without the layers that update the memory alone or the tokens alone."""
        updates_both = layer + 1 not in (self.compress_after, self.num_hidden_layers)
        is_used = self.memory_slots and updates_both and not self._is_memory_layer(layer)
        return self.memory_projections if is_used else ""
