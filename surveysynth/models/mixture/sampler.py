"""Sampler of mixtures: chains of many databases side by side, as one batch.

    beta_h, s_h, pi_h | rest    component by component, by proposals that use the gradient and
                                curvature of the marginal likelihood (``moves``)
    D, Omega, a | rest          Gibbs (``prior``)
    D and beta = D b | b, rest  all scales at once, the standardized coefficients b kept: where the
                                data determine a column poorly, its scale and coefficients are both
                                close to zero, and neither moves far without the other
    between chains              parallel tempering: next to each chain run others whose likelihood
                                is raised to a lower power, and neighbors trade places

Posteriors of mixtures have several modes, that is, other ways of cutting the outcome into
components. A single chain seldom moves between them; chains at lower powers do. All moves are
accepted by the exact ratio of the marginal likelihood raised to the risk weights, and a sweep uses
the same number of random numbers whatever is accepted. Given the data the survey weight is
independent of all this (``survey_weight``).
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtr

from surveysynth._support.types import INTERNAL_SUFFIX, FloatArray, Theta
from surveysynth.models.mixture.moves import (
    Coefficients,
    Expansion,
    Residuals,
    Shares,
    Spreads,
    newton,
)
from surveysynth.models.mixture.prior import MixturePrior
from surveysynth.models.mixture.start import find_mode
from surveysynth.models.mixture.stats import MixtureBatch, MixtureSums
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import Streams, run_sweeps

#: Passes over all components in a sweep, which keeps one draw.
PASSES = 2
#: Quantiles of the outcomes at which the distribution function is monitored.
POINTS = (0.1, 0.25, 0.5, 0.75, 0.9)
#: Functionals of a draw that do not depend on labels: mean, log SD and distribution function of the
#: outcome over all records. Internal: only the convergence gate uses them.
MARGINAL = f"marginal{INTERNAL_SUFFIX}"

_LOG2E = 1.0 / float(np.log(2.0))
#: Densities of a record that differ by more binary orders than this are treated as zero.
_FAR = 1000.0
#: Likelihoods are raised to powers from 1 down to this one, evenly spaced on the log scale.
COOLEST = 0.4
RUNGS = 4
#: Least curvature of a cell, as a share of that with its records assigned outright.
_LEAST_CURVATURE = 0.15
#: Spread of starts, in standard errors.
_OVERDISPERSED = 2.0


def sample(
    parts: Sequence[MixtureSums],
    components: int,
    priors: Mapping[str, float],
    plan: SamplingPlan,
    rng: Streams,
) -> Theta:
    """Draw all but the weight's parameters, (databases, chains, draws, ...).

    The result includes the internal functionals.
    """
    with np.errstate(all="ignore"):
        return run_sweeps(_Sampler(parts, components, priors, rng), plan)


class _Sampler:
    """State of D x C chains: beta (H, D, C, K), sd and log_shares (H, D, C).

    log_shares are up to a constant during a sweep. C also counts the chains at lower powers, next
    to the chain that they serve; ``rung`` (D, plan's chains, RUNGS) gives the power of each.
    """

    def __init__(
        self,
        parts: Sequence[MixtureSums],
        components: int,
        priors: Mapping[str, float],
        rng: Streams,
    ) -> None:
        rng = Streams(rng.generators, rng.chains * RUNGS)
        self.batch = MixtureBatch(parts, rng.chains)
        self.components, self.priors, self.rng = components, priors, rng
        self.lead, self.flat = self.batch.lead, len(parts) * rng.chains
        self.rung = np.tile(np.arange(RUNGS), (len(parts), rng.chains // RUNGS, 1))
        self._heat()
        self.spreads = Spreads(priors)
        points = self.batch.quantiles(POINTS)
        self.points = points[:, None, :, None]
        self._start(parts)

    def _start(self, parts: Sequence[MixtureSums]) -> None:
        """Set overdispersed starts about modes."""
        h, k, rng, least = self.components, self.batch.columns, self.rng, self.priors["least_sd"]
        ridge = (3.0 * self.priors["coefficient_scale"]) ** -2
        modes = [find_mode(part, h, least, ridge) for part in parts]
        self.beta = np.stack([mode.beta for mode in modes], axis=1)[:, :, None]
        self.beta = np.repeat(self.beta, rng.chains, axis=2)
        mass = np.stack([mode.mass for mode in modes], axis=1)[:, :, None]
        spread = 0.5 * _OVERDISPERSED / np.sqrt(mass + 1.0)
        noise = rng.standard_normal((2, h, self.flat), 2).reshape(2, h, *self.lead)
        share = np.stack([mode.share for mode in modes], axis=1)[:, :, None]
        self.log_shares = np.log(share) + spread * noise[0]
        above = np.stack([mode.sd for mode in modes], axis=1)[:, :, None] - least
        self.sd = least + np.maximum(above, 1e-3) * np.exp(spread * noise[1])
        size = np.abs(self.beta).max(axis=0).reshape(self.flat, k)
        size = np.maximum(size, 0.05 * self.priors["coefficient_scale"])
        self.prior = MixturePrior(h, size, self.priors, rng)
        self.all = np.empty((2, h, *self.lead, self.batch.pairs))
        self.all[0] = [self.batch.residual(beta) for beta in self.beta]
        self._refer()
        normals = rng.standard_normal((h, self.flat, k), 1).reshape(h, *self.lead, k)
        precision, total = self._precision(), self.all[1].sum(axis=0)
        for j in range(h):
            found = self._expand(self._held(j), total, self.sd[j])
            proposal = newton(self.beta[j], 0.0 * found.gradient, found.curvature + precision)
            self.beta[j] = proposal.draw(_OVERDISPERSED * normals[j])
        self.all[0] = [self.batch.residual(beta) for beta in self.beta]

    def _heat(self) -> None:
        """Weigh the data as every chain does, from ``rung`` (D, groups, RUNGS)."""
        self.power = COOLEST ** (self.rung / max(RUNGS - 1, 1)).reshape(self.lead)
        self.mass = self.batch.mass * self.power[..., None]
        self.total = self.batch.total * self.power

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, h, k, rng = self.flat, self.components, self.batch.columns, self.rng
        self.prior.draw_random_numbers(c * PASSES)
        self.n_beta = rng.standard_normal((c * PASSES, h, b, k), 2)
        self.u_move = rng.random((c * PASSES, h, 6, b), 3)
        self.n_scale = rng.standard_normal((c, b, k), 1)
        self.u_scale = rng.random((c, b), 1)
        self.u_swap = rng.random((c, b), 1)

    def sweep(self, i: int) -> None:
        self._refer()
        for j in range(i * PASSES, (i + 1) * PASSES):
            self._components(j)
            by_chain = (self.components, self.flat)
            shares = self.log_shares - _log_sum(self.log_shares)
            self.prior.update(j, self.beta.reshape(*by_chain, -1), shares.reshape(by_chain))
        self._scales(i)
        total = _log_sum(self.log_shares)
        self.log_shares -= total
        self._swap(i, total)

    def state(self) -> Theta:
        chosen = np.argmin(self.rung, axis=-1) + RUNGS * np.arange(self.rung.shape[1])
        chosen = (chosen + self.lead[1] * np.arange(self.lead[0])[:, None]).ravel()
        h = self.components
        of_chain = {
            "log_shares": self.log_shares.reshape(h, -1).T,
            "concentration": np.exp(self.prior.log_a)[:, None],
            "beta": np.moveaxis(self.beta, 0, 2).reshape(self.flat, h, -1),
            "residual_sd": self.sd.reshape(h, -1).T,
            "coefficient_scale": self.prior.scale,
            "coefficient_correlation": self.prior.correlation,
            MARGINAL: self._marginal().reshape(self.flat, -1),
        }
        return {name: values[chosen] for name, values in of_chain.items()}

    # --- densities ---------------------------------------------------------------------------

    def _held(self, h: int) -> Residuals:
        return Residuals(self.all[0, h], self.all[1, h])

    def _log2(self, residual: FloatArray, sd: FloatArray, log_share: FloatArray) -> FloatArray:
        """Return binary logs of a component's density at each pair, without a constant."""
        result = residual * residual
        result *= (-0.5 * _LOG2E / (sd * sd))[..., None]
        result += (_LOG2E * (log_share - np.log(sd)))[..., None]
        return result

    def _refer(self) -> None:
        """Compute densities of all components relative to the largest at each pair."""
        logs = self.all[1]
        for h in range(self.components):
            logs[h] = self._log2(self.all[0, h], self.sd[h], self.log_shares[h])
        self.reference = logs.max(axis=0)
        logs -= self.reference
        np.maximum(logs, -_FAR, out=logs)
        # Many times faster than exp, which has no vector instructions everywhere.
        np.exp2(logs, out=logs)

    def _at(
        self, beta: FloatArray, sd: FloatArray, log_share: FloatArray
    ) -> Residuals:
        """Evaluate a component at other parameters."""
        residual = self.batch.residual(beta)
        logs = self._log2(residual, sd, log_share)
        logs -= self.reference
        np.clip(logs, -_FAR, _FAR, out=logs)
        return Residuals(residual, np.exp2(logs, out=logs))

    def _gain(self, new: FloatArray, old: FloatArray) -> FloatArray:
        """Return the weighted log ratio of densities (D, C, P), summed over pairs: (D, C)."""
        ratio = new / old
        return np.asarray((np.log2(ratio, out=ratio) * self.mass).sum(-1) / _LOG2E)

    def _expand(self, own: Residuals, total: FloatArray, sd: FloatArray) -> Expansion:
        """Return gradient and curvature of the marginal likelihood in a component's coefficients.

        A record with share r and residual e has curvature r/s^2 (1 - (1 - r) e^2/s^2) xx'; summed
        by cell it is kept positive.
        """
        moments = np.empty((3, *total.shape))
        share = own.density / total
        np.multiply(self.mass, share, out=moments[0])
        np.multiply(moments[0], own.residual, out=moments[1])
        np.multiply(moments[1], own.residual, out=moments[2])
        held, squares = moments[0].sum(-1), moments[2].sum(-1)
        np.subtract(1.0, share, out=share)
        moments[2] *= share
        by_cell = self.batch.by_cell(moments)
        inverse = (1.0 / (sd * sd))[..., None]
        assigned = by_cell[0] * inverse
        curvature = np.maximum(
            assigned - by_cell[2] * inverse * inverse, _LEAST_CURVATURE * assigned
        )
        gradient = (by_cell[1] * inverse) @ self.batch.x
        return Expansion(gradient, self.batch.gram(curvature), held, squares)

    def _precision(self) -> FloatArray:
        k = self.batch.columns
        return self.prior.precision.reshape(*self.lead, k, k)

    # --- one component after the other -------------------------------------------------------

    def _components(self, i: int) -> None:
        h = self.components
        after = [np.zeros_like(self.reference)]
        for j in range(h - 1, 0, -1):
            after.append(after[-1] + self.all[1, j])
        before, precision = np.zeros_like(self.reference), self._precision()
        for j in range(h):
            self._component(i, j, before + after[h - 1 - j], precision)
            before += self.all[1, j]

    def _component(self, i: int, h: int, others: FloatArray, precision: FloatArray) -> None:
        """Draw coefficients, SD and share of component h at once.

        ``others``: the density of the other components at each pair.
        """
        beta, sd, share = self.beta[h], self.sd[h], self.log_shares[h]
        uniforms = self.u_move[i, h].reshape(6, *self.lead)
        own, total = self._held(h), others + self.all[1, h]
        now, forth = self._expansion(own, total, beta, sd, precision)
        centre = self.spreads.centre(now.held, now.squares)
        tau = np.log(sd - self.priors["least_sd"])
        new_tau = self.spreads.draw(centre, uniforms[0])
        new_beta = forth.draw(self.n_beta[i, h].reshape(beta.shape))
        new_sd, new_share, ratio = self.spreads.sd(new_tau), share, np.zeros(self.lead)
        shares = Shares(np.exp(self.prior.log_a).reshape(self.lead), self.components,
                        self.total)  # fmt: skip
        if self.components > 1:
            rest = _log_sum(np.delete(self.log_shares, h, axis=0))
            odds, new_odds = share - rest, shares.draw(now.held, uniforms[1:5])
            new_share = new_odds + rest
            ratio += shares.log_prior(new_odds) - shares.log_prior(odds)
            # The densities are not divided by the sum of the shares.
            rise = np.logaddexp(0.0, new_odds) - np.logaddexp(0.0, odds)
            ratio -= self.total * rise + shares.log_density(new_odds, now.held)
        new = self._at(new_beta, new_sd, new_share)
        new_total = others + new.density
        then, back = self._expansion(new, new_total, new_beta, new_sd, precision)
        if self.components > 1:
            ratio += shares.log_density(odds, then.held)
        there = self.spreads.centre(then.held, then.squares)
        ratio += self._gain(new_total, total)
        ratio += _log_normal(new_beta, precision) - _log_normal(beta, precision)
        ratio += back.log_density(beta) - forth.log_density(new_beta)
        ratio += self.spreads.log_prior(new_tau) - self.spreads.log_prior(tau)
        ratio += self.spreads.log_density(tau, there) - self.spreads.log_density(new_tau, centre)
        accept = np.log(uniforms[5]) < ratio
        self.beta[h] = np.where(accept[..., None], new_beta, beta)
        self.sd[h], self.log_shares[h] = (
            np.where(accept, new_sd, sd), np.where(accept, new_share, share)
        )  # fmt: skip
        np.copyto(self.all[0, h], new.residual, where=accept[..., None])
        np.copyto(self.all[1, h], new.density, where=accept[..., None])

    def _expansion(
        self, own: Residuals, total: FloatArray, beta: FloatArray, sd: FloatArray,
        precision: FloatArray,
    ) -> tuple[Expansion, Coefficients]:  # fmt: skip
        """Return the expansion of a component, and the proposal for its coefficients from there."""
        found = self._expand(own, total, sd)
        gradient = found.gradient - (precision @ beta[..., None])[..., 0]
        return found, newton(beta, gradient, found.curvature + precision)

    # --- scales with their coefficients ------------------------------------------------------

    def _scales(self, i: int) -> None:
        """Draw D given b = beta/D by Newton proposals in the scales.

        Scales may turn negative: the prior is the same for (-D, -b), and so is beta.
        """
        k = self.batch.columns
        scale = self.prior.scale.reshape(*self.lead, k)
        standardised = self.beta / scale
        densities = self.all[1]
        total = densities.sum(axis=0)
        log_prior, forth = self._scale_proposal(scale, standardised, self.all, total)
        new_scale = forth.draw(self.n_scale[i].reshape(scale.shape))
        beta = standardised * new_scale
        each = zip(beta, self.sd, self.log_shares, strict=True)
        moved = np.stack([np.stack(self._at(*parameters)) for parameters in each], axis=1)
        new_total = moved[1].sum(axis=0)
        new_log_prior, back = self._scale_proposal(new_scale, standardised, moved, new_total)
        gain = self._gain(new_total, total)
        ratio = gain + new_log_prior - log_prior
        ratio += back.log_density(scale) - forth.log_density(new_scale)
        accept = (np.log(self.u_scale[i]).reshape(self.lead) < ratio)[..., None]
        self.beta = np.where(accept, beta, self.beta)
        np.copyto(self.all, moved, where=accept)
        self.prior.rescale(np.where(accept, new_scale, scale).reshape(-1, k))
        self.density = np.where(accept, new_total, total)

    # --- parallel tempering ------------------------------------------------------------------

    def _swap(self, i: int, log_total: FloatArray) -> None:
        """Let neighboring powers trade chains (Geyer 1991), every second pair in turn."""
        logs = np.log2(self.density) + self.reference
        value = (logs * self.batch.mass).sum(-1) / _LOG2E - self.batch.total * log_total
        chain = np.argsort(self.rung, axis=-1)  # the one at each power
        value = np.take_along_axis(value.reshape(self.rung.shape), chain, axis=-1)
        upper, lower = slice(i % 2, RUNGS - 1, 2), slice(i % 2 + 1, RUNGS, 2)
        power = COOLEST ** (np.arange(RUNGS) / max(RUNGS - 1, 1))
        ratio = (power[upper] - power[lower]) * (value[..., lower] - value[..., upper])
        accept = np.log(self.u_swap[i].reshape(self.rung.shape)[..., upper]) < ratio
        own, other = chain[..., upper], chain[..., lower]
        chain[..., upper], chain[..., lower] = (
            np.where(accept, other, own), np.where(accept, own, other)
        )  # fmt: skip
        self.rung = np.argsort(chain, axis=-1)
        self._heat()

    def _scale_proposal(
        self, scale: FloatArray, standardised: FloatArray, state: FloatArray, total: FloatArray
    ) -> tuple[FloatArray, Coefficients]:
        """Return the log prior of the scales (D, C, K) and a proposal; state (2, H, D, C, P)."""
        width = HALF_T_DF * self.priors["coefficient_scale"] ** 2
        ratio = scale * scale / width
        log_prior = -0.5 * (HALF_T_DF + 1.0) * np.log1p(ratio).sum(-1)
        pull = (HALF_T_DF + 1.0) / width / (1.0 + ratio)
        gradient = -pull * scale
        curvature = pull[..., None] * np.eye(self.batch.columns)
        for h in range(self.components):
            b = standardised[h]
            found = self._expand(Residuals(state[0, h], state[1, h]), total, self.sd[h])
            gradient = gradient + found.gradient * b
            curvature = curvature + found.curvature * b[..., None, :] * b[..., :, None]
        return log_prior, newton(scale, gradient, curvature)

    def _marginal(self) -> FloatArray:
        """Return mean, log SD and distribution function (D, C, 2 + points) over all records."""
        by_cell = self.batch.by_cell(np.broadcast_to(self.batch.mass, self.reference.shape))
        mass = by_cell / np.maximum(by_cell.sum(-1, keepdims=True), 1e-300)
        mean, square = np.zeros(self.lead), np.zeros(self.lead)
        reached = np.zeros((*self.lead, len(POINTS)))
        for beta, sd, log_share in zip(self.beta, self.sd, self.log_shares, strict=True):
            fit, share = beta @ self.batch.transposed, np.exp(log_share)
            mean += share * (fit * mass).sum(-1)
            square += share * ((fit * fit + (sd * sd)[..., None]) * mass).sum(-1)
            below = ndtr((self.points - fit[:, :, None]) / sd[..., None, None])
            reached += share[..., None] * (below @ mass[..., None])[..., 0]
        log_sd = 0.5 * np.log(np.maximum(square - mean * mean, 1e-300))
        return np.concatenate([np.stack([mean, log_sd], axis=-1), reached], axis=-1)


def _log_sum(logs: FloatArray) -> FloatArray:
    """Return the log of the sum of exponentials along the first axis."""
    largest = logs.max(axis=0)
    return np.asarray(largest + np.log(np.exp(logs - largest).sum(axis=0)))


def _log_normal(beta: FloatArray, precision: FloatArray) -> FloatArray:
    """Return the exponent of the coefficients' prior, (D, C)."""
    return np.asarray(-0.5 * (beta * (precision @ beta[..., None])[..., 0]).sum(-1))
