"""The configuration of GMAT's models."""

from typing import Any

from transformers import PreTrainedConfig

from fairseq_memattn.networks import gmat_layers


class GMATConfig(PreTrainedConfig, gmat_layers.GMATConfig):
    """The configuration of an encoder with a global memory, and of its heads.

    The other options are those of the network.

    question_memory: whether the words of the question replace the first memory vectors in
        `GMATForQuestionAnswering`
    supporting_facts: whether `GMATForQuestionAnswering` tags supporting facts too

    Raises MemAttnError for values that do not fit together.
    """

    model_type = "memattn_gmat"

    initializer_range: float = 0.02
    question_memory: bool = False
    supporting_facts: bool = False
    bos_token_id: int = 0
    eos_token_id: int = 2
    mask_token_id: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        gmat_layers.GMATConfig.__post_init__(self)
