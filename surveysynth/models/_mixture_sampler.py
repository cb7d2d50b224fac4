"""Draws of a mixture by NUTS, in coordinates without a funnel (``_whitened``).

v = (w (H - 1), log a, z (H K), log(s_h - least_sd) (H), log coefficient scales (K),
unconstrained Omega). The survey weight needs no NUTS: given the data its parameters are independent
of these (``survey_weight``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth._types import DIVERGENT, FloatArray, Theta
from surveysynth.models._mixture_density import (
    log_shares,
    scales_log_prior,
    shares_log_prior,
    split,
)
from surveysynth.models._mixture_likelihood import MixtureSums, log_likelihood
from surveysynth.models._mixture_start import MixtureMode, find_mode
from surveysynth.models._whitened import WhitenedPrior
from surveysynth.models.base import SamplingPlan
from surveysynth.sampling import nuts

#: Prior SD of a coefficient, in units of its scale, for the mode that chains start about.
_WIDE = 3.0
#: Slope of an empty component's log share where it would claim one record.
_WALL = 1.5
#: Short steps: components come and go, and the posterior changes its shape with them.
_TARGET_ACCEPT = 0.92


@dataclass(frozen=True, repr=False)
class MixturePosterior:
    """The weighted posterior in the coordinates that NUTS moves in."""

    sums: MixtureSums
    components: int
    priors: Mapping[str, float]
    mode: MixtureMode
    prior: WhitenedPrior

    @classmethod
    def of(
        cls, sums: MixtureSums, components: int, priors: Mapping[str, float]
    ) -> "MixturePosterior":
        """Expanded about a mode."""
        ridge = (_WIDE * priors["coefficient_scale"]) ** -2
        with np.errstate(all="ignore"):
            mode = find_mode(sums, components, priors["least_sd"], ridge)
        prior = WhitenedPrior(mode.expansion, priors["coefficient_scale"], priors["lkj"])
        return cls(sums, components, priors, mode, prior)

    def _split(self, v: FloatArray) -> list[FloatArray]:
        return split(v, (self.prior.columns, 1), self.components)

    def _logits(self, w: FloatArray) -> FloatArray:
        """Logits (..., H - 1): w itself for components with a share of the mode's data. Those of
        empty ones reach far below a wall, where a component would claim a record: a slope of
        ``_WALL`` there, and steeper and steeper away from it."""
        active = self.mode.sd.size - 1
        wall = -np.log(max(self.sums.total, 1.0))
        return np.concatenate(
            [w[..., :active], wall - _WALL * np.sinh(w[..., active:])], axis=-1
        )

    def log_density(self, v: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient at v (d,); not finite where it cannot be computed."""
        w, log_a, z, log_sd, log_scale, omega, _ = self._split(v)
        point = self.prior.at(z, log_scale, omega)
        if point is None:
            return -np.inf, np.zeros_like(v)
        shares = shares_log_prior(self._logits(w), float(log_a[0]), self.priors)
        above = np.exp(log_sd)
        sd = self.priors["least_sd"] + above
        found = log_likelihood(self.sums, shares.log_pi, point.beta, sd)
        by_z, by_log_scale, by_omega = self.prior.gradient(point, found.by_beta)
        scales, by_scales = scales_log_prior(log_sd, self.priors)
        by_logits = shares.by_logits + (found.mass - shares.pi * found.mass.sum())[1:]
        empty = w[self.mode.sd.size - 1 :]
        jacobian = _WALL * np.cosh(empty)
        by_logits[self.mode.sd.size - 1 :] *= -jacobian
        by_logits[self.mode.sd.size - 1 :] += np.tanh(empty)
        gradient = np.concatenate(
            [
                by_logits, [shares.by_log_a], by_z.ravel(), found.by_sd * above + by_scales,
                by_log_scale, by_omega,
            ]
        )  # fmt: skip
        value = found.value + shares.value + scales + point.value
        return value + float(np.log(jacobian).sum()), gradient

    def start(self, rng: np.random.Generator) -> FloatArray:
        """A first point (d,): overdispersed about the mode, other components next to empty."""
        mode, count = self.mode, self.components
        active = mode.sd.size
        logits = 2.0 + 0.5 * rng.standard_normal(count)
        spread = 1.5 / np.sqrt(mode.mass + 1.0)
        logits[:active] = np.log(mode.share) + spread * rng.standard_normal(active)
        logits[:active] -= logits[0]
        log_sd = np.log(self.priors["residual_scale"]) + 0.5 * rng.standard_normal(count)
        above = np.maximum(mode.sd - self.priors["least_sd"], 1e-3)
        log_sd[:active] = np.log(above) + spread * rng.standard_normal(active)
        k = self.prior.columns
        return np.concatenate(
            [
                logits[1:],
                [np.log(self.priors["concentration_shape"] / self.priors["concentration_rate"])],
                1.2 * rng.standard_normal(count * k),
                log_sd,
                np.log(self.priors["coefficient_scale"]) + 0.7 * rng.standard_normal(k),
                0.3 * rng.standard_normal(k * (k - 1) // 2),
            ]
        )

    def theta(self, v: FloatArray) -> Theta:
        """Parameters at v (..., d)."""
        w, log_a, z, log_sd, log_scale, omega, _ = self._split(v)
        beta, correlation = self.prior.coefficients(z, log_scale, omega)
        return {
            "log_shares": log_shares(self._logits(w)),
            "concentration": np.exp(log_a),
            "beta": beta,
            "residual_sd": self.priors["least_sd"] + np.exp(log_sd),
            "coefficient_scale": np.exp(log_scale),
            "coefficient_correlation": correlation,
        }


def sample(
    sums: MixtureSums,
    components: int,
    priors: Mapping[str, float],
    plan: SamplingPlan,
    rng: np.random.Generator,
) -> Theta:
    """Draws (1, chains, draws, ...) of all but the weight's parameters, and ``divergent__``."""
    posterior = MixturePosterior.of(sums, components, priors)
    dimension = posterior.start(np.random.default_rng(0)).size
    drawn = nuts.sample(
        posterior.log_density, posterior.start, dimension, plan, rng, _TARGET_ACCEPT
    )
    theta = {name: values[None] for name, values in posterior.theta(drawn.u).items()}
    return {**theta, DIVERGENT: drawn.divergent[None].astype(np.float64)}
