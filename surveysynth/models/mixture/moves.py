"""Proposals for one component of a mixture, based on its current share of the records.

A record belongs to a component by the component's share r of the record's likelihood. If records
were assigned outright, the conditionals of a component's coefficients, SD and share would be known;
the proposals are close to these, each with its density. They depend on the current state, so the
Metropolis-Hastings ratio has the densities of the move and of its reverse. No assignment of records
would be exact: the likelihood raised to the risk weights is the marginal one.

All arrays have leading axes (D, C): databases and chains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, gammaincinv, stdtrit

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.coefficients import HALF_T_DF

#: Share of the records that counts for SD and share: assignments are uncertain.
_COUNTED = 0.7
#: Degrees of freedom, and width in standard errors, of the t distribution that SDs come from.
_DF = 4.0
_WIDTH = 1.1
#: Newton steps toward its center, each at most this long on the log scale.
_STEPS = 5
_LONGEST = 1.0
#: Least curvature at the center.
_FLAT = 0.5
#: Distance of uniform numbers from 0 and 1.
_EDGE = 1e-12


class Coefficients(NamedTuple):
    """A normal proposal N(mean, (root root')^-1): mean (D, C, K), root (D, C, K, K)."""

    mean: FloatArray
    root: FloatArray

    def draw(self, normals: FloatArray) -> FloatArray:
        """Draw (D, C, K) from as many standard normals."""
        noise = np.linalg.solve(self.root.swapaxes(-1, -2), normals[..., None])[..., 0]
        return np.asarray(self.mean + noise)

    def log_density(self, value: FloatArray) -> FloatArray:
        """Return the log density (D, C), without its constant."""
        centred = (value - self.mean)[..., None, :] @ self.root
        log_root = np.log(np.einsum("...kk->...k", self.root)).sum(-1)
        return np.asarray(log_root - 0.5 * (centred * centred).sum((-1, -2)))


def newton(
    at: FloatArray, gradient: FloatArray, precision: FloatArray
) -> Coefficients:
    """Return the normal about one Newton step from ``at`` (D, C, K)."""
    step = np.linalg.solve(precision, gradient[..., None])[..., 0]
    root = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    return Coefficients(np.asarray(at + step), root)


@dataclass(frozen=True)
class Spreads:
    """Moves of tau = log(s - least_sd)."""

    priors: Mapping[str, float]

    def sd(self, tau: FloatArray) -> FloatArray:
        """Return s."""
        return self.priors["least_sd"] + np.exp(tau)

    def log_prior(self, tau: FloatArray) -> FloatArray:
        """Return the log prior s - least_sd ~ half-t as a density of tau, without its constant."""
        t = self._ratio(np.exp(tau))
        return np.asarray(tau - 0.5 * (HALF_T_DF + 1.0) * np.log1p(t))

    def _ratio(self, above: FloatArray) -> FloatArray:
        scale = self.priors["residual_scale"]
        return above * above / (HALF_T_DF * scale * scale)

    def centre(self, held: FloatArray, squares: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Approximate mode and width of tau.

        held: the weight of a component; squares: the sum of its squared residuals.
        """
        least, scale = self.priors["least_sd"], self.priors["residual_scale"]
        counted = _COUNTED * held
        mean_square = squares / np.maximum(held, 1e-300)
        ratio = mean_square / (least * least)
        # Next to the least SD the density falls at this rate.
        rate = counted * np.maximum(1.0 - ratio, 0.0) + np.sqrt(counted) + 1.0
        above = np.maximum(np.sqrt(mean_square) - least, least / rate)
        tau = np.log(np.where(held < 1.0, scale, above))
        for _ in range(_STEPS):
            v = np.exp(tau)
            s, t = least + v, self._ratio(v)
            part, excess = v / s, mean_square / ((least + v) * (least + v)) - 1.0
            slope = counted * excess * part + 1.0 - (HALF_T_DF + 1.0) * t / (1.0 + t)
            curvature = counted * part * (2.0 * (excess + 1.0) * part - excess * (1.0 - part))
            curvature += 2.0 * (HALF_T_DF + 1.0) * t / (1.0 + t) ** 2
            curvature = np.maximum(curvature, _FLAT)
            tau = tau + np.clip(slope / curvature, -_LONGEST, _LONGEST)
        return tau, _WIDTH / np.sqrt(curvature)

    @staticmethod
    def draw(centre: tuple[FloatArray, FloatArray], uniforms: FloatArray) -> FloatArray:
        """Draw tau (D, C) from uniforms."""
        return centre[0] + centre[1] * stdtrit(_DF, np.clip(uniforms, _EDGE, 1.0 - _EDGE))

    @staticmethod
    def log_density(tau: FloatArray, centre: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Return the log density (D, C), without its constant."""
        z = (tau - centre[0]) / centre[1]
        return np.asarray(-np.log(centre[1]) - 0.5 * (_DF + 1.0) * np.log1p(z * z / _DF))


@dataclass(frozen=True)
class Shares:
    """Moves of lambda = log(pi_h / (1 - pi_h)), the other shares in proportion.

    a (D, C); H ``components``; ``total`` (D, 1), the weight of all records.
    """

    a: FloatArray
    components: int
    total: FloatArray

    def log_prior(self, odds: FloatArray) -> FloatArray:
        """Return the log prior pi ~ Dirichlet(a/H) as a density of lambda, up to a constant."""
        return self.a / self.components * odds - self.a * np.logaddexp(0.0, odds)

    def _shapes(self, held: FloatArray) -> tuple[FloatArray, FloatArray]:
        each = self.a / self.components
        others = _COUNTED * np.maximum(self.total - held, 0.0)
        return each + _COUNTED * held, self.a - each + others

    def draw(self, held: FloatArray, uniforms: FloatArray) -> FloatArray:
        """Draw lambda (D, C) from uniforms (4, D, C).

        It has the log odds of a beta distribution, however small its shapes.
        """
        uniforms = np.maximum(uniforms, 1e-300)
        logs = [
            np.log(gammaincinv(shape + 1.0, uniforms[j])) + np.log(uniforms[2 + j]) / shape
            for j, shape in enumerate(self._shapes(held))
        ]
        return np.asarray(logs[0] - logs[1])

    def log_density(self, odds: FloatArray, held: FloatArray) -> FloatArray:
        """Return the log density (D, C)."""
        own, others = self._shapes(held)
        value = own * odds - (own + others) * np.logaddexp(0.0, odds) - betaln(own, others)
        return np.asarray(value, dtype=np.float64)


class Residuals(NamedTuple):
    """Residuals (D, C, P) of a component and its density at each pair, up to a factor by pair."""

    residual: FloatArray
    density: FloatArray


class Expansion(NamedTuple):
    """The log posterior in a component's coefficients.

    Gradient (D, C, K) and curvature (D, C, K, K) of the likelihood; the weight of the component and
    its sum of squares (D, C).
    """

    gradient: FloatArray
    curvature: FloatArray
    held: FloatArray
    squares: FloatArray
