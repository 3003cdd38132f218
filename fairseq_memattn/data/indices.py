"""The type of arrays of indices and lengths."""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
