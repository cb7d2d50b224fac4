"""Gibbs sampler of the general location model (methods 4).

Its logits and regressions are independent given the data. A regression is

    z ~ N(u b + z_earlier d_g, s_g^2)   over the records that have z, u = (x, e(d), earlier z)
    b ~ N(0, tau^2 I),  d_g ~ N(0, t^2 I),  s_g^2 ~ scaled inverse chi^2(nu, s_0^2)

Without groups there are no d, and s itself has the prior of s_0. A sweep takes exact steps:

    tau | b;  tau | b / tau, s, t     d summed out of the second
    b | tau, t, s                     normal, d summed out
    t | b, s                          d summed out
    d | b, t, s                       normal
    s_0, nu | b, d                    s summed out
    s | s_0, nu, b, d                 inverse gamma
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.layout import Layout, RegressionPart
from surveysynth.models.general_location.scales import Scales
from surveysynth.models.general_location.stats import GeneralStats, RegressionSums
from surveysynth.models.parts.coefficients import overdispersion
from surveysynth.models.parts.logit import LogitBlocks
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams


class Coefficients:
    """Coefficients of one regression in B chains.

    core (B, C), and slopes (B, g, k) that a group adds to those of earlier z, k = 0 without groups.
    """

    def __init__(
        self, part: RegressionPart, sums: RegressionSums, grouped: bool, rng: Streams
    ) -> None:
        self.part, self.rng, self.sums = part, rng, sums
        self.batch, self.groups = sums.total.shape
        self.k = part.earlier.size if grouped else 0
        self.slopes = np.zeros((self.batch, self.groups, self.k))
        # Overdispersed starts about the least-squares fit.
        self.spread = _spread(sums)
        noise = overdispersion(sums.gram.sum(1), rng, 1)[:, :, 0]
        self.core = sums.fit + noise * np.sqrt(self.spread)[:, None]

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, rng = self.batch, self.rng
        self.n_core = rng.standard_normal((c, b, self.core.shape[1]), 1)
        self.n_slopes = rng.standard_normal((c, b, self.groups, self.k), 1)

    def expand(
        self, variance: FloatArray, t: FloatArray, tau: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Expand the likelihood of b about the fit, with the slopes summed out.

        Returns the likelihood of a factor on b / tau: minus its second derivative and its slope at
        zero, (B,) both.
        """
        s, first = self.sums, self.core.shape[1] - self.k
        weight = 1.0 / variance
        gram, cross = s.gram * weight[..., None, None], s.cross * weight[..., None]
        self.precision, self.linear = gram.sum(1), cross.sum(1)
        if self.k:
            self.side, self.score = gram[:, :, :, first:], cross[:, :, first:]
            inner = gram[:, :, first:, first:] + np.eye(self.k) / (t * t)[:, None, None, None]
            both = np.concatenate([self.side.swapaxes(-1, -2), self.score[..., None]], -1)
            solved = np.linalg.solve(inner, both)
            self.precision = self.precision - (self.side @ solved[..., :-1]).sum(1)
            self.linear = self.linear - (self.side @ solved[..., -1:])[..., 0].sum(1)
        direction = self.core / tau[:, None]
        along = (self.precision @ direction[..., None])[..., 0]
        return (direction * along).sum(-1), (direction * self.linear + along * s.fit).sum(-1)

    def draw(self, i: int, tau: FloatArray) -> None:
        """Draw b | tau, t, s."""
        shrink = 1.0 / (tau * tau)
        precision = self.precision + shrink[:, None, None] * np.eye(self.core.shape[1])
        linear = self.linear - shrink[:, None] * self.sums.fit
        self.shift = primitives.normal_from_precision(precision, linear, self.n_core[i])
        self.core = self.sums.fit + self.shift

    def turn_slopes(self) -> tuple[FloatArray, FloatArray]:
        """Return the likelihood of each group's slopes given b, in coordinates where it separates.

        That is curvatures and squares of the slopes at zero, (B, g k) both.
        """
        corner = self.side[:, :, self.core.shape[1] - self.k :]
        moved = (self.side.swapaxes(-1, -2) @ self.shift[:, None, :, None])[..., 0]
        values, self.vectors = np.linalg.eigh(corner)
        self.values = np.maximum(values, 0.0)
        self.turned = ((self.score - moved)[..., None, :] @ self.vectors)[..., 0, :]
        flat = (self.batch, self.groups * self.k)
        return self.values.reshape(flat), (self.turned * self.turned).reshape(flat)

    def draw_slopes(self, i: int, t: FloatArray) -> None:
        """Draw d | b, t, s."""
        precision = self.values + (1.0 / (t * t))[:, None, None]
        drawn = self.turned / precision + self.n_slopes[i] / np.sqrt(precision)
        self.slopes = (self.vectors @ drawn[..., None])[..., 0]


def _spread(sums: RegressionSums) -> FloatArray:
    """Approximate the residual variance (B,).

    After a perfect fit it would be zero and precisions overflow, so a millionth of the mean square
    is added, or one where there are no records.
    """
    mass = np.maximum(sums.total.sum(1), 1.0)
    squares = sums.residual.sum(1)
    explained = (sums.fit * (sums.gram.sum(1) @ sums.fit[..., None])[..., 0]).sum(-1)
    total = (squares + explained) / mass
    return np.asarray(squares / mass + np.where(total > 1e-290, 1e-6 * total, 1.0))


class Regressions:
    """All regressions of a layout in B chains."""

    def __init__(
        self,
        layout: Layout,
        sums: tuple[RegressionSums, ...],
        priors: Mapping[str, float],
        rng: Streams,
    ) -> None:
        self.grouped = layout.grouped
        self.parts = [
            Coefficients(part, each, layout.grouped, rng)
            for part, each in zip(layout.regressions, sums, strict=True)
        ]
        spread = np.stack([part.spread for part in self.parts])
        size = np.stack([(part.core**2).mean(-1) for part in self.parts])
        groups = self.parts[0].groups
        self.scales = Scales(spread, size, groups, layout.grouped, priors, rng)
        self.columns = np.array([[float(part.core.shape[1])] for part in self.parts])
        self.total = np.stack([part.sums.total for part in self.parts])

    def observe(self, sums: tuple[RegressionSums, ...]) -> None:
        """Take other sums, where they change between sweeps."""
        for part, each in zip(self.parts, sums, strict=True):
            part.sums = each
        self.total = np.stack([each.total for each in sums])

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        self.scales.draw_random_numbers(c)
        for part in self.parts:
            part.draw_random_numbers(c)

    def prior_precision(self, j: int) -> FloatArray:
        """Return the prior precisions (B, C) of the core coefficients of a regression."""
        part, tau = self.parts[j], self.scales.tau[j]
        return np.repeat(tau[:, None] ** -2, part.core.shape[1], axis=1)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        scales = self.scales
        scales.update_tau(i, self.columns, np.stack([(p.core**2).sum(-1) for p in self.parts]))
        expanded = [
            part.expand(scales.variance[j], scales.t[j], scales.tau[j])
            for j, part in enumerate(self.parts)
        ]
        quadratic, slope = (np.stack(arrays) for arrays in zip(*expanded, strict=True))
        scales.rescale(i, quadratic, slope)
        for j, part in enumerate(self.parts):
            part.draw(i, scales.tau[j])
        if any(part.k for part in self.parts):
            self._slopes(i)
        squares = [part.sums.squares(part.core, part.slopes) for part in self.parts]
        scales.update_variances(i, self.total, np.stack(squares))

    def _slopes(self, i: int) -> None:
        scales = self.scales
        most = max(part.groups * part.k for part in self.parts)
        values, squares = np.zeros((2, scales.j, scales.batch, most))
        for j, part in enumerate(self.parts):
            if part.k:
                size = part.groups * part.k
                values[j, :, :size], squares[j, :, :size] = part.turn_slopes()
        scales.update_t(i, values, squares)
        for j, part in enumerate(self.parts):
            if part.k:
                part.draw_slopes(i, scales.t[j])

    def state(self) -> Theta:
        """Return parameters by name, without those that a part's prior does not use."""
        state: Theta = {}
        scales = self.scales
        for j, part in enumerate(self.parts):
            name = part.part.name
            state[f"coefficients_{name}"] = part.core
            state[f"variance_{name}"] = scales.variance[j]
            state[f"coefficient_scale_{name}"] = scales.tau[j]
            if self.grouped:
                state[f"pooled_scale_{name}"] = scales.s_0[j]
                state[f"pooled_df_{name}"] = scales.nu[j]
            if part.k:
                state[f"slopes_{name}"] = part.slopes
                state[f"slope_scale_{name}"] = scales.t[j]
        return state


class Gibbs:
    """State of a batch of chains, B = databases x chains; each part by itself."""

    def __init__(self, stats: GeneralStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.layout, self.chains = stats.layout, rng.chains
        self.logits = [LogitBlocks(sums, priors["logit_sd"], rng) for sums in stats.logits]
        self.regressions = None
        if stats.regressions:
            repeated = tuple(sums.repeated(rng.chains) for sums in stats.regressions)
            self.regressions = Regressions(stats.layout, repeated, priors, rng)

    def observe(self, stats: GeneralStats) -> None:
        """Take other statistics of the same databases, where they change between sweeps."""
        for logit, counts in zip(self.logits, stats.logits, strict=True):
            logit.observe(counts)
        if self.regressions is not None:
            repeated = tuple(sums.repeated(self.chains) for sums in stats.regressions)
            self.regressions.observe(repeated)

    def state(self) -> Theta:
        """Return the parameters of all parts by name, the part's name last.

        For example "logit_1" (B, P, C - 1), "coefficients_2", "variance_weight".
        """
        state: Theta = {}
        for part, logit in zip(self.layout.logits, self.logits, strict=True):
            shape = (logit.batch, part.columns.size, part.own.size)
            state[f"logit_{part.name}"] = logit.b.reshape(shape)
        return state | ({} if self.regressions is None else self.regressions.state())

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        for logit in self.logits:
            logit.draw_random_numbers(c)
        if self.regressions is not None:
            self.regressions.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        with np.errstate(over="ignore", under="ignore"):
            for logit in self.logits:
                logit.sweep(i)
            if self.regressions is not None:
                self.regressions.sweep(i)
