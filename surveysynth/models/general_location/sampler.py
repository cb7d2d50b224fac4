"""Gibbs sampler of the general location model (methods 4).

Its logits are independent of each other and of the regressions given the data. A regression is

    z ~ N(x~ c + r (b + d_g), s_g^2)   over the records that have z

with r the residuals of the earlier columns of z about their own x~ c, zero where one is absent.

    c, b ~ N(0, tau^2), but for c of shrunken interactions
    d_g ~ N(0, t^2 I),  s_g^2 ~ scaled inverse chi^2(nu, s_0^2)

Without groups there are no d, and s itself has the prior of s_0. The rows have those of the prior
(``prior_rows``): records with slopes b and variances s_0^2. So the c of one shrunken interaction in
all regressions are normal, with kappa^2 times the covariance that b and s_0 make. A sweep takes
exact steps:

    c | b, d, tau, s                  all regressions at once, in odd sweeps: those of an amount and
                                      of a weight that follows it hold each other fast
    tau | c, b                        all regressions side by side, as in the last four lines
    tau | (c, b) / tau, s, t, rest    regression by regression in order, its d summed out; those of
    c, b | tau, t, s, rest            later ones stay, which see c in its residuals
    t | c, b, s                       d summed out, in even sweeps
    d | c, b, t, s                    normal
    s_0, nu | c, b, d                 s summed out, in odd sweeps
    s | s_0, nu, c, b, d              inverse gamma

Where s_0, nu and t move in every second sweep alone, coefficients and variances lose hardly any
precision.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.coefficients import ROUNDING, Coefficients
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.prior_rows import PriorRows, rows_of_prior
from surveysynth.models.general_location.scales import Scales
from surveysynth.models.general_location.stats import GeneralStats, GroupRows
from surveysynth.models.parts.logit import LogitBlocks, LogitSums
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams


class Regressions:
    """All regressions of a layout in B chains.

    Rows (B, g', m) are those of the g groups, and of some more with the records of the shrunken
    interactions. residual (B, g', m, q): of each column of z about its own x~ c; rest: what the
    ``slopes`` (B, g', q, q) leave of it, both zero where a column is absent.
    """

    def __init__(
        self,
        layout: Layout,
        rows: GroupRows,
        priors: Mapping[str, float],
        rng: Streams,
        pseudo: PriorRows | None = None,
    ) -> None:
        self.grouped, self.ridged = layout.grouped, list(layout.ridged)
        self.width = layout.columns
        self.prior = rows_of_prior(layout, priors["interaction_scale"], pseudo)
        rows = rows.with_prior(self.prior)
        self.parts: list[Coefficients] = []
        self.residual: FloatArray = np.zeros(rows.z.shape)
        for part in layout.regressions:
            own = Coefficients(part, rows, self.residual, layout.grouped, rng)
            self.parts.append(own)
            self.residual[..., part.position] = own.about_mean
        self.free = [
            np.setdiff1d(np.arange(part.core.shape[1]), self.ridged) for part in self.parts
        ]
        spread = np.stack([part.spread for part in self.parts])
        size = np.stack([(part.core**2).mean(-1) for part in self.parts])
        groups = self.parts[0].groups
        self.scales = Scales(spread, size, groups, layout.grouped, priors, rng, layout.least_df)
        self.columns = np.array([[float(free.size)] for free in self.free])
        self._take(rows)

    def observe(self, rows: GroupRows) -> None:
        """Take other rows, where they change between sweeps."""
        rows = rows.with_prior(self.prior)
        for part in self.parts:
            part.observe(rows)
        self._take(rows)

    def _take(self, rows: GroupRows) -> None:
        self.total = np.moveaxis(rows.total, -1, 0)
        self.present = rows.present.astype(np.float64)
        self.residual = np.stack([part.about_mean for part in self.parts], axis=-1)
        self._set_rest()

    def _set_rest(self) -> None:
        """Compute the slopes, and what they leave of the residuals."""
        core = self.core_slopes()[:, None]
        self.slopes = np.repeat(core, self.residual.shape[1], axis=1)
        for j, part in enumerate(self.parts):
            if part.k:
                self.slopes[:, : part.groups, j, part.part.earlier] += part.slopes
        told = self.residual @ self.slopes.swapaxes(-1, -2)
        self.rest = self.residual - self.present * told

    def core_slopes(self) -> FloatArray:
        """Return the slopes b of all regressions (B, q, q), zero where there is none."""
        q = len(self.parts)
        result = np.zeros((self.parts[0].batch, q, q))
        for j, part in enumerate(self.parts):
            result[:, j, part.part.earlier] = part.core[:, part.size :]
        return result

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        self.scales.draw_random_numbers(c)
        for part in self.parts:
            part.draw_random_numbers(c)
        self.n_means = [
            self.scales.rng.standard_normal((c, part.batch, part.size), 1) for part in self.parts
        ]

    def prior_precision(self, j: int) -> FloatArray:
        """Return the prior precisions (B, C) of the core coefficients of a regression.

        Zero for those of shrunken interactions, which have a prior across regressions.
        """
        part = self.parts[j]
        result = np.repeat(self.scales.tau[j][:, None] ** -2, part.core.shape[1], axis=1)
        result[:, self.ridged] = 0.0
        return result

    def told_by_prior(self, j: int) -> tuple[FloatArray, FloatArray]:
        """Return what pseudo-records of an amount say of its coefficients on X.

        Precision (B, K, K) and score (B, K); what they say of shrunken columns is not in it."""
        part, rows = self.parts[j], self.prior
        alone = rows.present[:, j] & (rows.present.sum(1) == 1)
        x = rows.x[alone][:, part.part.columns]
        left = rows.z[alone, j] - part.core[:, : part.size] @ x.T
        x, variance = x[:, : self.width], self.scales.common[j] ** 2
        return (x.T @ x) / variance[:, None, None], (left @ x) / variance[:, None]

    def of_prior(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of the prior's records (J, 1), and their sums of squares (J, B).

        Of what slopes leave, whose variance is s_0^2."""
        left = self.rest[:, self.total.shape[-1] :]
        return self.prior.count[:, None], np.moveaxis((left * left).sum((1, 2)), 0, 1)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        scales = self.scales
        if i % 2 and len(self.parts) > 1:
            self._means(i)
        squares = [
            (part.core[:, free] ** 2).sum(-1)
            for part, free in zip(self.parts, self.free, strict=True)
        ]
        scales.update_tau(i, self.columns, np.stack(squares))
        precision = self._precision()
        for j in range(len(self.parts)):
            self._core(i, j, precision)
        if any(part.k for part in self.parts):
            self._slopes(i, precision)
        self._set_rest()
        groups = self.total.shape[-1]
        left = np.moveaxis((self.rest[:, :groups] ** 2).sum(2), -1, 0)
        scales.update_variances(i, self.total, left, self.of_prior())

    def _precision(self) -> FloatArray:
        """Return 1 / s^2 (B, g', q) of all rows; those of the ridge have s_0."""
        scales, more = self.scales, self.residual.shape[1] - self.total.shape[-1]
        variance = np.moveaxis(scales.variance, 0, -1)
        if more:
            common = np.repeat(scales.common.T[:, None] ** 2, more, axis=1)
            variance = np.concatenate([variance, common], axis=1)
        return 1.0 / variance

    def _means(self, i: int) -> None:
        """Draw the coefficients on x~ of all regressions, all slopes given."""
        eye = np.eye(len(self.parts))
        # Of a row: what one more in the mean of column j takes from the rest of column l, over s_l.
        root = np.sqrt(self._precision())[:, :, None, :, None]
        taken = (eye - self.slopes)[:, :, None] * self.present[..., None] * root
        taken = taken * self.present[..., None, :]
        score = (taken * (self.rest[..., None] * root)).sum(-2)
        cuts = np.cumsum([0, *(part.size for part in self.parts)])
        places = [slice(*each) for each in pairwise(cuts)]
        precision = np.zeros((len(taken), cuts[-1], cuts[-1]))
        linear, normals = np.zeros((2, len(taken), cuts[-1]))
        for j, part in enumerate(self.parts):
            own, prior = places[j], self.prior_precision(j)[:, : part.size]
            precision[:, own, own] = prior[..., None] * np.eye(part.size)
            linear[:, own] = part.times_x(score[..., j, None])[..., 0]
            linear[:, own] -= prior * part.core[:, : part.size]
            normals[:, own] = self.n_means[j][i]
            for k, other in enumerate(self.parts[: j + 1]):
                weight = (taken[..., j] * taken[..., k]).sum(-1)
                block = part.times_x(other.x * weight[..., None])
                precision[:, own, places[k]] += block
                if k < j:
                    precision[:, places[k], own] += block.swapaxes(-1, -2)
        diagonal = np.einsum("bii->bi", precision)
        diagonal += ROUNDING * diagonal
        shift = primitives.normal_from_precision(precision, linear, normals)
        moved = [part.shifted(shift[:, own]) for part, own in zip(self.parts, places, strict=True)]
        self.residual = self.residual - np.stack(moved, axis=-1)
        self._set_rest()

    def _core(self, i: int, j: int, precision: FloatArray) -> None:
        """Draw tau and the core coefficients of a regression, its own slopes summed out."""
        part, scales = self.parts[j], self.scales
        part.look(self.residual)
        later = slice(j + 1, None)
        slopes, present = self.slopes[:, :, None, later, j], self.present[..., later]
        seen = None
        if j + 1 < len(self.parts):
            pull = slopes * precision[:, :, None, later]
            seen = (slopes * pull * present).sum(-1), -(pull * self.rest[..., later]).sum(-1)
        part.expand(precision[..., j], scales.t[j], seen)
        direction = part.core / scales.tau[j][:, None]
        direction[:, self.ridged] = 0.0
        scales.rescale(i, j, *part.along(direction))
        moved = part.draw(i, self.prior_precision(j))
        self.residual[..., j] -= moved
        self.rest[..., later] += slopes * present * moved[..., None]

    def _slopes(self, i: int, precision: FloatArray) -> None:
        scales = self.scales
        most = max(part.groups * part.k for part in self.parts)
        values, squares = np.zeros((2, scales.j, scales.batch, most))
        for j, part in enumerate(self.parts):
            if part.k:
                size = part.groups * part.k
                told = part.slope_likelihood(precision[..., j])
                values[j, :, :size], squares[j, :, :size] = told
        if i % 2 == 0:
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
    """State of a batch of chains, B = databases x chains; logits, and regressions together."""

    def __init__(self, stats: GeneralStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.layout, self.chains = stats.layout, rng.chains
        sds = stats.layout.logit_sds(priors)
        self.logits = [LogitBlocks(*each, rng) for each in zip(stats.logits, sds, strict=True)]
        self.regressions = None
        if stats.rows is not None:
            repeated = stats.rows.repeated(rng.chains)
            self.regressions = Regressions(stats.layout, repeated, priors, rng, stats.pseudo)

    def observe(self, stats: GeneralStats, about: Sequence[LogitSums | None] = ()) -> None:
        """Take other statistics of the same databases, where they change between sweeps.

        about: as of ``LogitBlocks.observe``, of each logit."""
        about = about or [None] * len(self.logits)
        for logit, counts, near in zip(self.logits, stats.logits, about, strict=True):
            logit.observe(counts, near)
        if self.regressions is not None and stats.rows is not None:
            self.regressions.observe(stats.rows.repeated(self.chains))

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
