"""Moves of coefficients together with the scales of their prior (methods 4.2).

    beta_j ~ N(0, D_j Omega D_j) for each outcome j, D_j = diag(sigma_j), sigma_jk ~ half-t

Where the data say little of a coefficient, its own scale holds it: with two PSUs in each of many
strata the intercept is the mean of the two of one stratum, and all other strata compare with it.
A shift of the intercept, and of the others against it, leaves the likelihood alone and meets the
small scales of whichever coefficients are near zero, which in turn move no faster. Here

    beta_jk' = beta_jk + delta u_k,  sigma_jk' = sigma_jk |beta_jk' / beta_jk|

with delta from the likelihood along u. Coordinates beta and b = beta / sigma have the density

    likelihood(beta) N(b; 0, Omega) prod_k half-t(beta_k / b_k) / |b_k|,

in which the move changes half-t, and the signs of some b: it is accepted by the ratio of those.
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.coefficients import CoefficientBlocks
from surveysynth.sampling.sweeps import Streams

#: Directions of each outcome: of the coefficients that the likelihood tells no better than so many
#: independent records do a mean, those with the largest variances, at most so many.
FEW_RECORDS, DIRECTIONS = 50.0, 8


class CoefficientShifts:
    """Directions (B, q, d, K) of B chains, from a likelihood's precision (B, q, K, q, K).

    variance (B, q): of residuals, about. free: the first columns of X, which have scales; others
    have a ridge in the likelihood.
    """

    def __init__(
        self, precision: FloatArray, variance: FloatArray, free: int, rng: Streams
    ) -> None:
        batch, q, k = precision.shape[:3]
        self.free, self.rng, self.shape = free, rng, (q, min(free, DIRECTIONS), batch)
        flat = precision.reshape(batch, q * k, q * k)
        ridge = 1e-9 * np.trace(flat, axis1=1, axis2=2)[:, None, None] / (q * k) + 1e-12
        covariance = np.linalg.inv(flat + ridge * np.eye(q * k))
        own = np.einsum("bjkjl->bjkl", covariance.reshape(precision.shape))
        spread = np.einsum("bjkk->bjk", own)
        unknown = FEW_RECORDS * spread[..., :free] > variance[..., None]
        count = min(int(unknown.sum(-1).max()), DIRECTIONS)
        widest = np.argsort(-spread[..., :free], axis=-1)[..., :count, None]
        # One of zero, which moves nothing, where another chain of the batch has more of them.
        taken = np.take_along_axis((unknown / spread[..., :free])[..., None], widest, 2)
        self.directions = np.take_along_axis(own, widest, 2) * taken

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps: as many, however many directions."""
        self.normals = self.rng.standard_normal((c, *self.shape), 3)
        self.log_u = np.log(self.rng.random((c, *self.shape), 3))

    def move(
        self, i: int, block: CoefficientBlocks, precision: FloatArray, linear: FloatArray
    ) -> None:
        """Move beta and its scales, given the likelihood: precision and linear (B, q, K)."""
        beta, scale = np.moveaxis(block.beta, -1, 1).copy(), block.scale.copy()
        slope = linear - np.einsum("bjkml,bml->bjk", precision, beta)
        for j, d in np.ndindex(self.directions.shape[1:3]):
            u = self.directions[:, j, d]
            pull = (precision[:, :, :, j] @ u[:, None, :, None])[..., 0]
            width = (u * pull[:, j]).sum(-1)
            told = width > 0.0  # records without weight tell nothing
            sd = np.where(told, 1.0, 0.0) / np.sqrt(np.where(told, width, 1.0))
            delta = sd * (sd * (u * slope[:, j]).sum(-1) + self.normals[i, j, d])
            new = beta[:, j] + delta[:, None] * u
            before = beta[:, j, : self.free]
            b, ratio = before / scale[:, j], new[:, : self.free] / before
            scaled = scale[:, j] * np.abs(ratio)
            tail = (block.half_t(scaled) - block.half_t(scale[:, j])).sum(-1)
            turned = block.log_normal(np.sign(ratio) * b) - block.log_normal(b)
            accept = self.log_u[i, j, d] < tail + turned
            step = np.where(accept, delta, 0.0)
            beta[:, j] += step[:, None] * u
            scale[:, j] = np.where(accept[:, None], scaled, scale[:, j])
            slope -= step[:, None, None] * pull
        block.beta, block.scale = np.moveaxis(beta, 1, -1), scale
