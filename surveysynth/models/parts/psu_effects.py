"""Effects of PSUs in data that are simulated under noisy statistics (methods 3, clusters).

    eta_i, z_i = mean_i + a_c(i) + e_i,  a_c ~ N(0, T),  D columns: log odds, then amounts
"""

import math

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta

#: Entry of Theta: T (..., D, D), which may be released.
PSU_COVARIANCE = "psu_covariance"
#: Share of the variance that lies between PSUs, in the guess of ``surveysynth check``.
INTRACLASS_GUESS = 0.05
#: The residual variance of log odds: that of the logistic distribution.
LOGISTIC_VARIANCE = math.pi**2 / 3.0


def fresh_effects(
    theta: Theta,
    psu: IntArray | None,
    rng: np.random.Generator,
    mean: FloatArray | float = 0.0,
) -> FloatArray | float:
    """Draw new effects a* ~ N(mean, T) of every PSU, record by record (n, q); 0 without effects.

    theta: one draw; psu (n,) codes; mean (q,).
    """
    if PSU_COVARIANCE not in theta:
        return 0.0
    if psu is None:
        raise ValueError("parameters with effects of PSUs meet a design without PSUs")
    root = np.linalg.cholesky(theta[PSU_COVARIANCE])
    effects = mean + rng.standard_normal((int(psu.max()) + 1, root.shape[0])) @ root.T
    return np.asarray(effects[psu], dtype=np.float64)
