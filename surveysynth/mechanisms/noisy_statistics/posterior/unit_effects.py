"""How much PSUs differ, given a fit that ignores them and noisy sums by PSU (strict 7).

For a draw theta of that fit, sums S_j of PSU j are about

    S_j ~ N(M_j + J_j e_j, V_j + noise),   e = Q beta + b,  b_j ~ N(0, T),

M_j, J_j and V_j by numbers of records and the moments of ``unit_moments``, Q the absorbed
directions with beta about flat (``unit_design``). A Gibbs sampler draws e, beta, and T, of all
draws theta side by side. Effects are in units of residuals: the SD of the logistic distribution,
and a root of the residual covariance of the columns of z. There they vary by less than records do,
in every direction: where noise hides T, its prior alone would make records vary more than sums say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.unit_moments import (
    CellMoments,
)
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.models.general_location.psu_sampler import LOGISTIC_VARIANCE
from surveysynth.models.general_location.residual_covariances import covariances
from surveysynth.models.parts.covariance import CovarianceBlock
from surveysynth.models.parts.psu_effects import INTRACLASS_GUESS, proposed_ratio
from surveysynth.models.parts.unit_design import UnitDesign
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import SWEEPS_AT_ONCE, Streams

#: Scale of the half-t prior of SDs of effects, in residual SDs: an intraclass correlation of .2.
PRIOR_SCALE = 0.5
#: Share of the residual variance that effects leave in any direction, at least.
LEAST_LEFT = 0.1
#: Prior SD of beta: about flat, as a PSU's row of Q has entries near 1 / sqrt(C).
WIDE = 100.0
#: Sweeps before T is taken, at first and again after the moments are corrected by T.
SWEEPS = (160, 160)
#: A logit with a normal effect of variance v is one without, at slopes divided by
#: sqrt(1 + ATTENUATION v) (Zeger, Liang and Albert 1988).
ATTENUATION = (16.0 * np.sqrt(3.0) / (15.0 * np.pi)) ** 2


@dataclass(frozen=True, eq=False)
class UnitLikelihood:
    """The likelihood of effects e (B, C, D): exp(linear e - e precision e / 2)."""

    linear: FloatArray
    precision: FloatArray

    @classmethod
    def of(
        cls, moments: Sequence[CellMoments], design: UnitDesign, sums: FloatArray, sd: FloatArray,
        logits: int, covariance: FloatArray | None = None,
    ) -> "UnitLikelihood":  # fmt: skip
        """Return it for sums (C, H) with noise of SDs (H,) and the moments of B draws.

        covariance (B, D, D): T by which moments are corrected: a normal effect on log odds
        flattens them, and the covariance of records is that within PSUs.
        """
        parts = []
        for draw, each in enumerate(moments):
            slope, within = each.slope, each.covariance
            if covariance is not None:
                slope, within = _corrected(each, logits, covariance[draw])
            parts.append(_likelihood(each.mean, slope, within, design, sums, sd))
        linear, precision = zip(*parts, strict=True)
        return cls(np.stack(linear), np.stack(precision))


def _corrected(
    moments: CellMoments, logits: int, covariance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    flat = np.ones(len(covariance))
    flat[:logits] += ATTENUATION * LOGISTIC_VARIANCE * np.diagonal(covariance)[:logits]
    slope = moments.slope / np.sqrt(flat)
    return slope, moments.covariance - slope @ covariance @ slope.swapaxes(-1, -2)


def _likelihood(
    mean: FloatArray, slope: FloatArray, within: FloatArray,
    design: UnitDesign, sums: FloatArray, sd: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Return linear terms (C, D) and precisions (C, D, D)."""
    n = design.records
    left = (sums - n @ mean) / sd
    units, (h, d) = design.units, slope.shape[1:]
    j = (n @ slope.reshape(len(slope), -1)).reshape(units, h, d) / sd[:, None]
    v = (n @ within.reshape(len(within), -1)).reshape(units, h, h) / (sd[:, None] * sd)
    values, vectors = np.linalg.eigh(v)
    # Rounding, and moments corrected by too large a T, may leave values below zero.
    turned = vectors.swapaxes(-1, -2) / np.sqrt(1.0 + np.maximum(values, 0.0))[..., None]
    white, seen = turned @ j, turned @ left[..., None]
    transposed = white.swapaxes(-1, -2)
    return (transposed @ seen)[..., 0], transposed @ white


class UnitGibbs:
    """T (B, D, D) and effects e = Q beta + b of B draws, for the likelihood of their PSUs.

    Of D effects the last are ``amounts``, on columns of z whose residual covariance is the identity
    matrix; T leaves a share of it.
    """

    def __init__(
        self, likelihood: UnitLikelihood, absorbed: FloatArray, prior_scale: float, lkj: float,
        rng: Streams, amounts: int,
    ) -> None:  # fmt: skip
        self.q, self.rng, self.prior_scale = absorbed, rng, prior_scale
        self.batch, self.units, self.d = likelihood.linear.shape
        self.logits = self.d - amounts
        share = INTRACLASS_GUESS * np.exp(rng.standard_normal((self.batch, 1, 1), 0))
        start = np.minimum(share, 0.5) * np.eye(self.d)
        total = np.full(self.batch, float(self.units))
        self.block = CovarianceBlock(start, total, prior_scale, lkj, rng, tied=True)
        self.beta = np.zeros((self.batch, absorbed.shape[1], self.d))
        self.b = np.zeros(likelihood.linear.shape)
        self.observe(likelihood)

    def observe(self, likelihood: UnitLikelihood) -> None:
        """Go on with another likelihood."""
        self.likelihood = likelihood
        diagonal = np.einsum("bcdd->bdc", likelihood.precision)
        own = (diagonal[:, :, None] * self.q.T) @ self.q
        self.beta_precision = own + WIDE**-2 * np.eye(self.q.shape[1])

    def run(self, sweeps: int) -> FloatArray:
        """Return T after so many sweeps, a multiple of ``SWEEPS_AT_ONCE``."""
        shape, r = (self.batch, self.units, self.d), self.q.shape[1]
        for _ in range(sweeps // SWEEPS_AT_ONCE):
            rng, c = self.rng, SWEEPS_AT_ONCE
            self.block.draw_random_numbers(c)
            self.n_effects = rng.standard_normal((c, *shape), 1)
            self.n_beta = rng.standard_normal((c, 2, self.batch, r, self.d), 2)
            self.u_ratio = rng.random((c, 2, self.d, self.batch), 3)
            for i in range(c):
                self._sweep(i)
        return self.block.covariance

    def _sweep(self, i: int) -> None:
        self._draw_effects(i)
        self._shift_given_likelihood(i)
        self._rescale(i)
        self.block.update(i, self.b.swapaxes(-1, -2) @ self.b, self._log_room)

    def _log_room(self, covariance: FloatArray) -> FloatArray:
        """Return 0 for T (..., B, D, D) that leaves a share of the residual covariance, or -inf."""
        if self.logits == self.d:
            return np.zeros(covariance.shape[:-2])
        largest = np.linalg.eigvalsh(covariance[..., self.logits :, self.logits :])[..., -1]
        return np.where(largest <= 1.0 - LEAST_LEFT, 0.0, -np.inf)

    def _draw_effects(self, i: int) -> None:
        """Draw e given beta and T, then beta given e and T."""
        told, d = self.likelihood, self.d
        inverse = np.linalg.inv(self.block.covariance)
        linear = told.linear + (self.q @ self.beta) @ inverse
        e = primitives.normal_from_precision(
            (told.precision + inverse[:, None]).reshape(-1, d, d), linear.reshape(-1, d),
            self.n_effects[i].reshape(-1, d),
        ).reshape(told.linear.shape)  # fmt: skip
        r = self.q.shape[1]
        precision = np.repeat(inverse + WIDE**-2 * np.eye(d), r, axis=0)
        self.beta = primitives.normal_from_precision(
            precision, (self.q.T @ e @ inverse).reshape(-1, d), self.n_beta[i, 0].reshape(-1, d)
        ).reshape(self.beta.shape)
        self.b = e - self.q @ self.beta

    def _shift_given_likelihood(self, i: int) -> None:
        """Draw beta given b, one column of effects after another."""
        told, beta = self.likelihood, self.beta.copy()
        left = told.linear - (told.precision @ (self.b + self.q @ beta)[..., None])[..., 0]
        for k in range(self.d):
            own = told.precision[..., k, k] * (self.q @ beta[..., k, None])[..., 0]
            drawn = primitives.normal_from_precision(
                self.beta_precision[:, k], (left[..., k] + own) @ self.q, self.n_beta[i, 1, :, :, k]
            )
            change = (drawn - beta[..., k]) @ self.q.T
            left = left - told.precision[..., k] * change[..., None]
            beta[..., k] = drawn
        self.beta = beta

    def _rescale(self, i: int) -> None:
        """Draw the SDs of T given the effects b in units of these."""
        told, covariance = self.likelihood, self.block.covariance
        shifted = told.linear - (told.precision @ (self.q @ self.beta)[..., None])[..., 0]
        linears = (self.b * shifted).sum(1)
        quadratics = np.einsum("bci,bcij,bcj->bij", self.b, told.precision, self.b)
        units = np.sqrt(np.einsum("bkk->bk", covariance)) / self.prior_scale
        factor, log_u = np.ones(units.shape), np.log(self.u_ratio[i, 1])
        for j in range(self.d):
            quadratic = quadratics[:, j, j]
            left = linears[:, j] + quadratic - (quadratics[:, j] * factor).sum(1)
            ratio, accept = proposed_ratio(units[:, j], left, quadratic, self.u_ratio[i, 0, j])
            moved = factor.copy()
            moved[:, j] = ratio
            accept = accept + self._log_room(covariance * moved[:, :, None] * moved[:, None])
            factor = np.where((log_u[j] < accept)[:, None], moved, factor)
        self.b = self.b * factor[:, None]
        self.block.covariance = covariance * factor[:, :, None] * factor[:, None, :]


def unit_covariances(
    thetas: Sequence[Theta],
    shape: LocationShape,
    design: UnitDesign,
    statistics: LocationStatistics,
    priors: Mapping[str, float],
    rng: np.random.Generator,
) -> FloatArray:
    """Return one T (m, D, D) for each of m draws theta, given their noisy sums by PSU.

    ``priors``: "lkj", and "psu_scale" where it was chosen; ``PRIOR_SCALE`` residual SDs otherwise.
    """
    units = statistics.units
    assert units is not None  # the caller has looked
    logits = shape.layout.amount_effects.start
    scales = np.stack([_scale(theta, shape, design) for theta in thetas])
    moments = []
    for theta, scale in zip(thetas, scales, strict=True):
        each = CellMoments.of(theta, shape, statistics.centre, statistics.spread)
        moments.append(CellMoments(each.mean, each.slope @ scale, each.covariance))
    sums = np.concatenate([units.amounts, units.counts], axis=1)
    given = design, sums, units.noise_sd, logits
    prior = priors.get("psu_scale", PRIOR_SCALE)
    streams = Streams((rng,), len(moments))
    gibbs = UnitGibbs(
        UnitLikelihood.of(moments, *given), design.absorbed, prior, priors["lkj"], streams, shape.q
    )
    first = gibbs.run(SWEEPS[0])
    gibbs.observe(UnitLikelihood.of(moments, *given, covariance=first))
    return np.asarray(scales @ gibbs.run(SWEEPS[1]) @ scales.swapaxes(-1, -2))


def _scale(theta: Theta, shape: LocationShape, design: UnitDesign) -> FloatArray:
    """Return the scale (D, D) of effects at a draw: a root of the covariance of residuals.

    That of columns of z is a mean over records."""
    first, last = shape.layout.amount_effects.start, shape.layout.amount_effects.stop
    of_group = covariances(theta, shape.layout.regressions, np.ones(shape.q, dtype=bool))
    records = np.bincount(shape.group, weights=design.records.sum(0), minlength=len(of_group))
    result: FloatArray = LOGISTIC_VARIANCE**0.5 * np.eye(last)
    mean = np.einsum("g,gij->ij", records / records.sum(), of_group)
    result[first:, first:] = np.linalg.cholesky(mean)
    return result
