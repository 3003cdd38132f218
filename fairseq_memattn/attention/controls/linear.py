"""The projection to what an exponential function is taken of."""

from torch import Tensor, nn
from torch.nn.functional import linear

from fairseq_memattn.attention.ops.precision import full_precision
from fairseq_memattn.attention.ops.state import accumulation_dtype


class FloatLinear(nn.Linear):
    """`nn.Linear` in float32, whatever the dtypes of weights and inputs (float64 of float64).

    The exponential of a logit that bfloat16 rounds is off by a share that grows with the logit.
    """

    def forward(self, input: Tensor) -> Tensor:
        return _float_linear(input, self.weight, self.bias)


@full_precision
def _float_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    dtype = accumulation_dtype(x)
    return linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
