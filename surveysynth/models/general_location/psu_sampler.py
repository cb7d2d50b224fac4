"""Gibbs sampler of the general location model with effects of PSUs (methods 3.5 and 3.6).

    a_k ~ N(0, T),  T = D Omega D,  scales half-t3,  Omega ~ LKJ

a_k has the effects of a PSU on the predictors of all logits, then on all columns of z. A sweep:

    b, a of each logit                   together, by a Hamiltonian trajectory (``psu_logits``)
    regressions | a                      as without PSUs, of z less the effects (``sampler``)
    a of z | regressions                 normal
    scales of T | a over these           likelihood times the priors of the scales
    a of z, then scales once more        for z alone, cheaply: small scales move slowly
    one column of a turned by another    likelihood times the prior of T (``psu_turns``)
    coefficients against a               in directions that vary little within PSUs
    T | a                                as a residual covariance (``parts.covariance``)
"""

import itertools
from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.psu_amounts import AmountSums
from surveysynth.models.general_location.psu_logits import PsuLogit
from surveysynth.models.general_location.psu_records import BetweenDirections
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.models.parts.covariance import CovarianceBlock
from surveysynth.models.parts.psu_effects import (
    INTRACLASS_GUESS,
    MOVES,
    PSU_COVARIANCE,
    PSU_EFFECT,
    proposed_ratio,
)
from surveysynth.models.parts.psu_turns import Turn
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Variance of a standard logistic variable, that of the residual of a predictor of a logit.
LOGISTIC_VARIANCE = np.pi**2 / 3.0
#: Sweeps for each kept draw where a logit has several effects of a PSU: their scales mix slowly
#: where PSUs differ little.
SWEEPS_OF_CATEGORIES = 4


class ClusteredGibbs:
    """State of a batch of chains, B = databases x chains, with effects (B, C, D) of PSUs."""

    def __init__(self, stats: GeneralStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.layout, self.rng, self.scale = stats.layout, rng, priors["psu_scale"]
        self.prior = self.scale, priors["lkj"]
        between = BetweenDirections.of_chains([each.between for each in stats.psus], rng.chains)
        self.directions, self.along = between.coefficients, between.along
        self.along_squares = self.along.swapaxes(-1, -2) @ self.along
        self.batch, count = stats.databases * rng.chains, stats.psus[0].count
        sds = stats.layout.logit_sds(priors)
        self.logits = [
            PsuLogit(sums, [each.logits[k] for each in stats.psus], sds[k], between, rng)
            for k, sums in enumerate(stats.logits)
        ]
        #: Sweeps for each kept draw.
        self.each = SWEEPS_OF_CATEGORIES if any(logit.c > 1 for logit in self.logits) else 1
        self.logit_precision = [sd[: self.layout.columns] ** -2.0 for sd in sds]
        first, last = self.layout.amount_effects.start, self.layout.amount_effects.stop
        self.effects = np.zeros((self.batch, count, last))
        spread = np.full((self.batch, last), LOGISTIC_VARIANCE)
        self.regressions: Regressions | None = None
        if stats.rows is not None:
            self.sums = AmountSums(stats.psus, between)
            rows = self.sums.rows(self.effects[..., first:])
            self.regressions = Regressions(self.layout, rows, priors, rng, stats.pseudo)
            spread[:, first:] = self.regressions.scales.variance[..., 0].T
        inflation = np.exp(rng.standard_normal((self.batch, 1), 0))
        start = INTRACLASS_GUESS * (inflation * spread)[..., None] * np.eye(last)
        # Effects of zero would be collinear once the same coefficients have moved against them.
        noise = rng.standard_normal(self.effects.shape, 0)
        self.effects = np.sqrt(np.einsum("bdd->bd", start))[:, None] * noise
        for logit, columns in zip(self.logits, self.layout.logit_effects, strict=True):
            logit.begin(self.effects[..., columns])
        size = np.full(self.batch, float(count))
        self.block = CovarianceBlock(start, size, *self.prior, rng)
        self.sweeps = 0

    def state(self) -> Theta:
        """Return the parameters of all parts by name, T, and the effects of the sampled PSUs."""
        parts = zip(self.layout.logits, self.logits, strict=True)
        state = {f"logit_{part.name}": logit.b for part, logit in parts}
        if self.regressions is not None:
            state |= self.regressions.state()
        return {**state, PSU_COVARIANCE: self.block.covariance, PSU_EFFECT: self.effects}

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        rng, (batch, count, size) = self.rng, self.effects.shape
        self.block.draw_random_numbers(c)
        for logit in self.logits:
            logit.draw_random_numbers(c)
        if self.regressions is not None:
            self.regressions.draw_random_numbers(c)
        q = self.layout.q
        self.n_effects = rng.standard_normal((c, MOVES, batch, count, q), 2)
        self.u_ratio = rng.random((c, MOVES, 2, q, batch), 4)
        self.n_turn = rng.standard_normal((c, size, size, batch), 3)
        self.log_u_turn = np.log(rng.random((c, size, size, batch), 3))
        self.n_shift = rng.standard_normal((c, q, batch, self.directions.shape[1]), 2)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        with np.errstate(over="ignore", under="ignore"):
            precision = np.asarray(np.linalg.inv(self.block.covariance), dtype=np.float64)
            for logit, columns in zip(self.logits, self.layout.logit_effects, strict=True):
                logit.trajectory(i, *self._law(precision, columns))
                self._set(columns, logit.a)
            likelihood = self._amounts(i, precision) if self._amounts_move(i) else None
            precision = self._rescale_logits(i, precision)
            if likelihood is not None:
                for move in range(MOVES):
                    if move:
                        self._draw_effects(i, move, precision, *likelihood)
                    precision = self._rescale_amounts(i, move, precision, *likelihood)
                self._turn_amounts(i, *likelihood)
            self._turn_logits(i)
            precision = np.asarray(np.linalg.inv(self.block.covariance), dtype=np.float64)
            self._shift_logits(i, precision)
            if likelihood is not None:
                self._shift_amounts(i, precision)
        self.block.update(i, self.effects.swapaxes(-1, -2) @ self.effects)
        self.sweeps += 1

    def _set(self, columns: slice, values: FloatArray) -> None:
        # Draws that are kept are these arrays: they are replaced, never written into.
        effects = self.effects.copy()
        effects[..., columns] = values
        self.effects = effects

    def _law(self, precision: FloatArray, columns: slice) -> tuple[FloatArray, FloatArray]:
        """Return the normal law of some effects given the others: precision, and linear term."""
        own = precision[:, columns, columns]
        a = self.effects
        return own, -(a @ precision[..., columns] - a[..., columns] @ own)

    # --- amounts ------------------------------------------------------------------------------

    def _amounts_move(self, i: int) -> bool:
        """Return whether regressions and their effects move in a sweep.

        Where a draw takes several sweeps, in the first half of them: two in a row, since the moves
        of regressions take turns."""
        return self.regressions is not None and 2 * (i % self.each) < self.each

    def _amounts(self, i: int, precision: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Draw regressions and their effects; return the likelihood of these effects."""
        regressions, columns = self.regressions, self.layout.amount_effects
        assert regressions is not None  # the caller has looked
        regressions.observe(self.sums.rows(self.effects[..., columns]))
        regressions.sweep(i)
        likelihood = self.sums.likelihood(self._means(), self._precision(regressions))
        self._draw_effects(i, 0, precision, *likelihood)
        return likelihood

    def _draw_effects(
        self,
        i: int,
        move: int,
        precision: FloatArray,
        told: FloatArray,
        information: FloatArray,
    ) -> None:
        """Draw the effects on z given their likelihood and those on logits."""
        columns, q = self.layout.amount_effects, self.layout.q
        own, linear = self._law(precision, columns)
        drawn = primitives.normal_from_precision(
            (information + own[:, None]).reshape(-1, q, q),
            (told + linear).reshape(-1, q),
            self.n_effects[i, move].reshape(-1, q),
        )
        self._set(columns, drawn.reshape(told.shape))

    def _precision(self, regressions: Regressions) -> FloatArray:
        """Return the precision (B, k, q, q) of z given x~ and effects."""
        variance = regressions.scales.variance[..., 0].T
        return self.sums.precision(regressions.core_slopes(), variance)

    def _means(self) -> FloatArray:
        """Return the coefficients (B, W, q) on x~ of all regressions."""
        assert self.regressions is not None  # the caller has looked
        result = np.zeros((self.batch, self.layout.width, self.layout.q))
        for j, part in enumerate(self.regressions.parts):
            result[:, part.part.columns, j] = part.core[:, : part.size]
        return result

    # --- coefficients against effects ---------------------------------------------------------

    def _shift_logits(self, i: int, precision: FloatArray) -> None:
        k, parts = self.layout.columns, zip(self.logits, self.layout.logit_effects, strict=True)
        for part, (logit, columns) in enumerate(parts):
            prior = np.broadcast_to(self.logit_precision[part], (self.batch, k))
            for c in range(logit.c):
                own = columns.start + c
                logit.shift(i, c, *self._shift_law(own, logit.b[:, :k, c], prior, precision))
                self._set(columns, logit.a)

    def _shift_amounts(self, i: int, precision: FloatArray) -> None:
        regressions, k, d = self.regressions, self.layout.columns, self.directions
        assert regressions is not None  # the caller has looked
        first, of_z = self.layout.amount_effects.start, self._precision(regressions)
        for j, part in enumerate(regressions.parts):
            prior, told = regressions.prior_precision(j)[:, :k], regressions.told_by_prior(j)
            own, linear = self._shift_law(first + j, part.core[:, :k], prior, precision)
            effects = self.effects[..., first:]
            likelihood = self.sums.shift_likelihood(j, effects, self._means(), of_z)
            own = own + d.T @ told[0] @ d + likelihood[0]
            linear = linear + told[1] @ d + likelihood[1]
            shift = primitives.normal_from_precision(own, linear, self.n_shift[i, j])
            part.core = part.core.copy()
            part.core[:, :k] += shift @ d.T
            column = slice(first + j, first + j + 1)
            self._set(column, self.effects[..., column] - self.along @ shift[..., None])

    def _shift_law(
        self, column: int, core: FloatArray, prior: FloatArray, precision: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return what priors say of a shift: precision (B, r, r), linear term (B, r).

        Of coefficients core (B, K) with prior precisions ``prior`` against the effects in one
        column; precision: of the effects.
        """
        directions, along = self.directions, self.along.swapaxes(-1, -2)
        pull = (along @ (self.effects @ precision[:, :, column, None]))[..., 0]
        own = directions.T @ (prior[..., None] * directions)
        own = own + precision[:, column, column, None, None] * self.along_squares
        return own, pull - (prior * core) @ directions

    # --- covariance ---------------------------------------------------------------------------

    def _rescale_logits(self, i: int, precision: FloatArray) -> FloatArray:
        """Draw the scales of effects on logits given the effects over these; precision of T."""
        scale = np.sqrt(np.einsum("bdd->bd", self.block.covariance))
        factor = np.ones(scale.shape)
        for logit, columns in zip(self.logits, self.layout.logit_effects, strict=True):
            factor[:, columns] = logit.rescale(i, scale[:, columns], self.scale)
        return self._rescaled(factor, precision)

    def _rescale_amounts(
        self,
        i: int,
        move: int,
        precision: FloatArray,
        told: FloatArray,
        information: FloatArray,
    ) -> FloatArray:
        """Draw the scales of effects on z likewise."""
        columns = self.layout.amount_effects
        scale = np.sqrt(np.einsum("bdd->bd", self.block.covariance))
        factor = np.ones(scale.shape)
        factor[:, columns] = self._ratios(
            self.u_ratio[i, move], scale[:, columns] / self.scale, self.effects[..., columns],
            told, information,
        )  # fmt: skip
        return self._rescaled(factor, precision)

    def _turn_logits(self, i: int) -> None:
        """Turn every effect on a logit by one other, the next of them each sweep."""
        others = self.effects.shape[-1] - 1
        for logit, columns in zip(self.logits, self.layout.logit_effects, strict=True):
            for j in range(columns.start, columns.stop) if others else ():
                k = (j + 1 + self.sweeps % others) % (others + 1)
                along, own = self.effects[..., k], j - columns.start
                turn = Turn(self.block.covariance, (j, k), logit.told(own, along), self.prior)
                t = logit.turn(own, along, turn, self.n_turn[i, j, k], self.log_u_turn[i, j, k])
                self.block.covariance = turn.turned(t)
                self._set(columns, logit.a)

    def _turn_amounts(self, i: int, told: FloatArray, information: FloatArray) -> None:
        """Turn every effect on z by all others; told, information: their likelihood."""
        first, size = self.layout.amount_effects.start, self.effects.shape[-1]
        left = told - (information @ self.effects[..., first:, None])[..., 0]
        for j, k in itertools.product(range(first, size), range(size)):
            if k == j:
                continue
            own, along = j - first, self.effects[..., k]
            slope = (along * left[..., own]).sum(1)
            quadratic = (along * along * information[..., own, own]).sum(1)
            turn = Turn(self.block.covariance, (j, k), quadratic, self.prior)
            t = turn.draw(slope, self.n_turn[i, j, k], self.log_u_turn[i, j, k])
            self.block.covariance = turn.turned(t)
            change = t[:, None] * along
            left = left - change[..., None] * information[..., own]
            self._set(slice(j, j + 1), (self.effects[..., j] + change)[..., None])

    def _rescaled(self, factor: FloatArray, precision: FloatArray) -> FloatArray:
        """Multiply scales and effects by ratios (B, D); return the precision of T after that."""
        both = factor[:, :, None] * factor[:, None, :]
        self.effects = self.effects * factor[:, None]
        self.block.covariance = self.block.covariance * both
        return precision / both

    def _ratios(
        self,
        uniforms: FloatArray,
        units: FloatArray,
        effects: FloatArray,
        linear: FloatArray,
        precision: FloatArray,
    ) -> FloatArray:
        """Draw the ratios (B, q) of new and old scales, one column after another.

        uniforms (2, q, B); units: scales over that of their prior; linear, precision: the
        likelihood of the effects.
        """
        linears = (effects * linear).sum(1)
        quadratics = np.einsum("bci,bcij,bcj->bij", effects, precision, effects)
        factor, log_u = np.ones(units.shape), np.log(uniforms[1])
        for j in range(self.layout.q):
            quadratic = quadratics[:, j, j]
            left = linears[:, j] + quadratic - (quadratics[:, j] * factor).sum(1)
            ratio, log_accept = proposed_ratio(
                units[:, j], left, quadratic, uniforms[0, j]
            )
            factor[:, j] = np.where(log_u[j] < log_accept, ratio, factor[:, j])
        return factor
