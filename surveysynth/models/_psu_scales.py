"""Scales of the covariance T of PSU effects, the effects integrated out (methods 3, clusters).

Given effects T cannot move farther than they allow, and given their standardised values no farther
than these: where the data tell about as much of an effect as its prior, chains that do the one and
the other still creep. The density of the sums by PSU without the effects is closed,

    p(r_c | T) ∝ |W_c|^(-1/2) exp(-r_c' W_c^-1 r_c / (2 A_c)),  W_c = Sigma + A_c T

with r_c the sum of residuals of A_c effective records,

and its sum over PSUs costs little.
"""

import numpy as np

from surveysynth._types import FloatArray
from surveysynth.models._coefficient_prior import HALF_T_DF
from surveysynth.models._covariance import LogTie
from surveysynth.sampling import primitives
from surveysynth.sampling.streams import Streams

#: Width of the window of log s_j that a slice looks at, placed at random about the current value:
#: what lies outside is reached in several sweeps.
WINDOW = 8.0
#: Shrink steps of a window before the current point is kept: 2/3 of it a step, on average.
TRIES = 32


def log_marginal(
    psu_covariance: FloatArray, covariance: FloatArray, total: FloatArray, squares: FloatArray
) -> FloatArray:
    """Log density (B,) of the sums by PSU without effects, up to a constant, for q = 2.

    T and Sigma (B, 2, 2), total A (B, C); squares (B, C, 3): r_1^2, r_2^2 and r_1 r_2 over A_c,
    zeros where A_c is.
    """
    w_1 = total * psu_covariance[:, 0, 0, None] + covariance[:, 0, 0, None]
    w_2 = total * psu_covariance[:, 1, 1, None] + covariance[:, 1, 1, None]
    w_both = total * psu_covariance[:, 0, 1, None] + covariance[:, 0, 1, None]
    determinant = w_1 * w_2 - w_both * w_both
    quadratic = w_2 * squares[:, :, 0] + w_1 * squares[:, :, 1] - 2.0 * w_both * squares[:, :, 2]
    result: FloatArray = -0.5 * (np.log(determinant) + quadratic / determinant).sum(1)
    return result


def squares_by_psu(total: FloatArray, residual: FloatArray) -> FloatArray:
    """What ``log_marginal`` takes of the weighted sums (B, C, 2) of residuals by PSU."""
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    first, second = residual[:, :, 0], residual[:, :, 1]
    products = np.stack([first * first, second * second, first * second], axis=-1)
    return np.asarray(products * inverse[:, :, None], dtype=np.float64)


class ScaleSlices:
    """Slices over log s_1 and log s_2 of T = D Omega D, s_j ~ half-t3(0, ``prior_scale``)."""

    def __init__(self, batch: int, prior_scale: float, rng: Streams) -> None:
        self.batch, self.prior_scale, self.rng = batch, prior_scale, rng

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""
        self.u_place = self.rng.random((c, 2, 2, self.batch), 3)
        self.u_slice = self.rng.random((c, 2, TRIES, self.batch), 3)

    def update(
        self,
        i: int,
        psu_covariance: FloatArray,
        covariance: FloatArray,
        total: FloatArray,
        residual: FloatArray,
        log_tie: LogTie,
    ) -> FloatArray:
        """T (B, 2, 2) with other scales; i counts the sweeps since ``draw_random_numbers``."""
        squares = squares_by_psu(total, residual)
        for j in range(2):
            psu_covariance = self._scale(
                i, j, psu_covariance, covariance, total, squares, log_tie
            )
        return psu_covariance

    def _scale(
        self,
        i: int,
        j: int,
        psu_covariance: FloatArray,
        covariance: FloatArray,
        total: FloatArray,
        squares: FloatArray,
        log_tie: LogTie,
    ) -> FloatArray:
        current = 0.5 * np.log(psu_covariance[:, j, j])
        unit = np.arange(2) == j

        def moved(log_scale: FloatArray) -> FloatArray:
            factor = np.exp((log_scale - current)[:, None] * unit)
            result: FloatArray = psu_covariance * factor[:, :, None] * factor[:, None, :]
            return result

        def log_density(log_scale: FloatArray) -> FloatArray:
            t = moved(log_scale)
            prior = log_scale + primitives.half_t_log_density(
                np.exp(log_scale), HALF_T_DF, self.prior_scale
            )
            return prior + log_marginal(t, covariance, total, squares) + log_tie(t)

        lower = current - WINDOW * self.u_place[i, j, 0]
        chosen = primitives.slice_sample(
            log_density, current, lower, lower + WINDOW, self.u_place[i, j, 1], self.u_slice[i, j]
        )
        return moved(chosen)
