"""Names for array types; shapes are stated where the arrays are used."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

#: Parameter draws by name; the leading axes (chains, draws or releases) are the same for all.
Theta: TypeAlias = dict[str, FloatArray]

#: Entries of Theta with this ending concern single records or the sampler: they are confidential
#: and never leave the mechanism. Stan keeps such names for itself, so no parameter has one.
INTERNAL_SUFFIX = "__"
#: (databases, chains, draws), 1 where a draw diverged; only from samplers that report it.
DIVERGENT = "divergent" + INTERNAL_SUFFIX
