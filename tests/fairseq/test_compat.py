"""What fairseq's older code makes torch warn about."""

import warnings

import torch
from fairseq.modules import MultiheadAttention

from fairseq_memattn.compat import quiet_known_warnings


def test_masks_of_two_types_are_no_warning():
    """fairseq's decoders give attention a mask of numbers and one of booleans."""
    attention = MultiheadAttention(8, 2, self_attention=True)
    x, padding = torch.zeros(3, 1, 8), torch.tensor([[False, False, True]])
    future = torch.full((3, 3), float("-inf")).triu(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet_known_warnings()
        attention(x, x, x, key_padding_mask=padding, attn_mask=future)
