"""Feature maps of kernel attention: what stands in for the exponential of softmax attention."""

from fairseq_memattn.attention.kernels.base import FeatureMap
from fairseq_memattn.attention.kernels.elu import ELUFeatures
from fairseq_memattn.attention.kernels.rfa import Gate, RandomFeatures
from fairseq_memattn.attention.kernels.t2r import T2RFeatures

__all__ = ["ELUFeatures", "FeatureMap", "Gate", "RandomFeatures", "T2RFeatures"]
