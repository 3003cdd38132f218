"""The models in transformers' format: `import fairseq_memattn.transformers` registers them.

After it, the Auto classes of transformers load a folder that `memattn export` wrote:
`AutoModelForCausalLM.from_pretrained(FOLDER)`. fairseq is not needed.
"""

from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from fairseq_memattn.transformers.auto_classes import register
from fairseq_memattn.transformers.transformer_config import BoundedTransformerConfig
from fairseq_memattn.transformers.transformer_models import (
    BoundedTransformerForCausalLM,
    BoundedTransformerForConditionalGeneration,
    BoundedTransformerForMaskedLM,
)

register(
    BoundedTransformerConfig,
    {
        AutoModelForSeq2SeqLM: BoundedTransformerForConditionalGeneration,
        AutoModelForCausalLM: BoundedTransformerForCausalLM,
        AutoModelForMaskedLM: BoundedTransformerForMaskedLM,
    },
)
