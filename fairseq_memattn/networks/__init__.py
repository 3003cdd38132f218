"""The models as plain torch networks: batch first, with every state explicit.

fairseq's models and transformers' models are shells around them. They need torch alone.
"""

from fairseq_memattn.networks.decoder import Decoder, DecoderLM, DecoderSizes, DecoderState
from fairseq_memattn.networks.genbert import GenBERT, GenBERTConfig, GenBERTState
from fairseq_memattn.networks.gmat import GMATEncoder, GMATOutput
from fairseq_memattn.networks.gmat_layers import GMATConfig, MaskedLMHead, SpanHead
from fairseq_memattn.networks.t5 import T5, Decoded, Encoded, T5State
from fairseq_memattn.networks.t5_layers import T5Sizes
from fairseq_memattn.networks.t5mem import T5Mem
from fairseq_memattn.networks.t5mem_encoder import T5MemSizes, join_sequences

__all__ = [
    "Decoded",
    "Decoder",
    "DecoderLM",
    "DecoderSizes",
    "DecoderState",
    "Encoded",
    "GMATConfig",
    "GMATEncoder",
    "GMATOutput",
    "GenBERT",
    "GenBERTConfig",
    "GenBERTState",
    "MaskedLMHead",
    "SpanHead",
    "T5",
    "T5Mem",
    "T5MemSizes",
    "T5Sizes",
    "T5State",
    "join_sequences",
]
