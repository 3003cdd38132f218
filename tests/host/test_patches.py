"""Repairs of fairseq: what its older code makes torch warn about, and its log file."""

import warnings

import torch
from fairseq.logging import progress_bar
from fairseq.modules import MultiheadAttention

from fairseq_memattn.host.messages.logs import quiet_known_warnings
from fairseq_memattn.host.patches import prepare_fairseq


def test_masks_of_two_types_are_no_warning():
    """fairseq's decoders give attention a mask of numbers and one of booleans."""
    attention = MultiheadAttention(8, 2, self_attention=True)
    x, padding = torch.zeros(3, 1, 8), torch.tensor([[False, False, True]])
    future = torch.full((3, 3), float("-inf")).triu(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet_known_warnings()
        attention(x, x, x, key_padding_mask=padding, attn_mask=future)


def test_a_log_has_each_line_once(tmp_path, caplog):
    prepare_fairseq()
    caplog.set_level("INFO")
    path = tmp_path / "log"
    before = list(progress_bar.logger.handlers)
    try:
        for epoch in (1, 2, 3):
            made = progress_bar.progress_bar([], "simple", log_file=str(path), epoch=epoch)
            made.print({"loss": 0.5})
    finally:
        progress_bar.logger.handlers[:] = before
    assert path.read_text().splitlines() == [f"epoch 00{n} | loss 0.5" for n in (1, 2, 3)]
