"""Parameters that components of a mixture share: coefficient scales, Omega, concentration.

    beta_h ~ N(0, D Omega D), h = 1..H, all of one D;  pi ~ Dirichlet(a/H, .., a/H), a ~ Gamma

Gibbs blocks given the components, as in ``parts.coefficients`` but with the common D.
"""

from collections.abc import Mapping

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Bracket of log a, outside of which its density is negligible; the left tail falls as a does.
_LOG_A_BRACKET = (-60.0, 12.0)


class MixturePrior:
    """scale (B, K), Omega (B, K, K) and log a (B,) of B chains, for H components."""

    def __init__(
        self, components: int, size: FloatArray, priors: Mapping[str, float], rng: Streams
    ) -> None:
        """Start about ``size`` (B, K), the approximate distance of coefficients from zero."""
        batch, k = size.shape
        self.components, self.priors, self.rng = components, priors, rng
        # LKJ(eta) is the correlation of a Wishart with K - 1 + 2 eta degrees of freedom.
        self.columns = round(k - 1 + 2 * priors["lkj"])
        self.scale = size * np.exp(0.3 + 0.5 * rng.standard_normal((batch, k), 0))
        self.root = rng.standard_normal((batch, k, self.columns), 0)
        a = priors["concentration_shape"] / priors["concentration_rate"]
        self.log_a = np.log(a) + 0.5 * rng.standard_normal((batch,), 0)
        self._set_correlation()

    def _set_correlation(self) -> None:
        self.correlation = primitives.wishart_correlation(self.root)
        self.inverse_correlation = np.linalg.inv(self.correlation)

    @property
    def precision(self) -> FloatArray:
        """(D Omega D)^-1, (B, K, K)."""
        inverse = 1.0 / self.scale
        return np.asarray(self.inverse_correlation * inverse[:, :, None] * inverse[:, None, :])

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c updates."""
        (b, k), h, rng = self.scale.shape, self.components, self.rng
        tries = primitives.MAX_SHRINKS
        self.n_root = rng.standard_normal((c, b, k, self.columns), 1)
        self.n_split = rng.standard_normal((c, b, k, h), 1)
        self.u_level = rng.random((c, 2, b), 2)
        self.u_tries = rng.random((c, 2, tries, b), 3)
        self.u_scale = rng.random((c, 2, b, k), 2)

    def update(self, i: int, beta: FloatArray, log_shares: FloatArray) -> None:
        """Draw Omega, D and a given beta (H, B, K) and log shares (H, B)."""
        beta = beta.transpose(1, 2, 0)
        self._correlation(i, beta)
        self._scales(i, beta)
        self._concentration(i, log_shares.sum(0))

    def _correlation(self, i: int, beta: FloatArray) -> None:
        """Draw Omega | beta, D: H standardized coefficient vectors under LKJ."""
        batch = beta.shape[0]
        self.root = primitives.elliptical_correlation(
            self.root, self.n_root[i], np.full(batch, float(self.components)),
            beta / self.scale[:, :, None], self.u_level[i, 0], self.u_tries[i, 0],
        )  # fmt: skip
        self._set_correlation()

    def _scales(self, i: int, beta: FloatArray) -> None:
        """Draw D | beta, Omega, by the split of ``CoefficientBlocks``, H vectors to a scale."""
        largest = np.linalg.eigvalsh(self.inverse_correlation)[:, -1]
        bound = 1.02 * largest
        rest = bound[:, None, None] * np.eye(beta.shape[1]) - self.inverse_correlation
        standardised = beta / self.scale[:, :, None]
        split = rest @ standardised + np.linalg.cholesky(rest) @ self.n_split[i]
        self.scale = primitives.update_scales(
            self.scale, float(self.components), bound[:, None] * (beta * beta).sum(-1),
            (split * beta).sum(-1), (HALF_T_DF, self.priors["coefficient_scale"]),
            self.u_scale[i],
        )  # fmt: skip

    def _concentration(self, i: int, log_product: FloatArray) -> None:
        """Draw a | pi by slice, given the sum of the log shares (B,)."""
        shape, rate = self.priors["concentration_shape"], self.priors["concentration_rate"]
        count = self.components

        def log_density(log_a: FloatArray) -> FloatArray:
            a = np.exp(log_a)
            value = gammaln(a) - count * gammaln(a / count) + a / count * log_product
            return np.asarray(value + shape * log_a - rate * a, dtype=np.float64)

        low, high = (np.full(self.log_a.shape, edge) for edge in _LOG_A_BRACKET)
        self.log_a = primitives.slice_sample(
            log_density, self.log_a, low, high, self.u_level[i, 1], self.u_tries[i, 1]
        )

    def rescale(self, scale: FloatArray) -> None:
        """Set the scales (B, K); a negative one turns its coefficient's sign in Omega."""
        self.root = self.root * np.where(scale < 0, -1.0, 1.0)[:, :, None]
        self.scale = np.abs(scale)
        self._set_correlation()
