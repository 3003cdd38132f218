"""Attention layers for any PyTorch program: batch first, every state explicit."""

from fairseq_memattn.attention.nn.abc import ABCAttention
from fairseq_memattn.attention.nn.global_memory import GlobalMemoryAttention
from fairseq_memattn.attention.nn.memory_slots import MemorySlotAttention, SlotPositionBias
from fairseq_memattn.attention.ops.rotary import Rotary

__all__ = [
    "ABCAttention",
    "GlobalMemoryAttention",
    "MemorySlotAttention",
    "Rotary",
    "SlotPositionBias",
]
