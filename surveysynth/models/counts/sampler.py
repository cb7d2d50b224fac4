"""Sampler of count regressions: chains of many databases side by side, as one batch.

    beta | phi, D, Omega    proposed from the normal that the prior and the likelihood, expanded at
                            the mode, make together (Metropolis-Hastings); some elliptical slices
    log phi | beta          proposed from a grid at the mode (Metropolis-Hastings); some slices
    D, Omega | beta         ``CoefficientBlocks``

The slices also move where the expansion is poor: with few records or none, or no count above zero.
The point of expansion depends on the data alone, so every step is exact, and a sweep uses the same
number of random numbers whatever is accepted (``sampling.primitives``). Given the data the survey
weight is independent of all this (``survey_weight``).
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import INTERACTION_PRIOR
from surveysynth.models.counts.family import CountFamily
from surveysynth.models.counts.mode import Mode, find_mode, overdispersion_log_prior
from surveysynth.models.counts.stats import CountSums
from surveysynth.models.parts.coefficients import CoefficientBlocks
from surveysynth.sampling import primitives
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import Streams, run_sweeps

#: Sweeps between two slices.
SLICE_EVERY = 4
#: Bracket of log phi, whose tails fall at least as fast as exp(-|log phi|).
LOG_PHI_BRACKET = 50.0


def sample(
    family: CountFamily,
    sums: CountSums,
    priors: Mapping[str, float],
    plan: SamplingPlan,
    rng: Streams,
) -> Theta:
    """Draw beta, phi, coefficient scales and Omega, (databases, chains, draws, ...).

    Raises ``FloatingPointError`` for counts that are not finite, as simulated ones can be.
    """
    if not (np.isfinite(sums.sums).all() and np.isfinite(sums.log_factorials).all()):
        raise FloatingPointError("the sums of the counts are not finite")
    with np.errstate(over="ignore", under="ignore"):
        return run_sweeps(_Sampler(family, sums, priors, rng), plan)


class _Sampler:
    """State of B x C chains, databases first; values of the likelihood are (B, C)."""

    def __init__(
        self, family: CountFamily, sums: CountSums, priors: Mapping[str, float], rng: Streams
    ) -> None:
        self.family, self.sums, self.rng = family, sums, rng
        self.mode: Mode = find_mode(family, sums, priors)
        self.lead = sums.mass.shape[0], rng.chains
        self.batch, self.k = self.lead[0] * rng.chains, self.mode.beta.shape[1]
        self.eta_at_mode = sums.eta(self.mode.beta[:, None])
        self._start(priors)

    def _start(self, priors: Mapping[str, float]) -> None:
        """Set overdispersed starts about the mode."""
        chains = self.rng.chains
        self.log_phi = np.repeat(self.mode.log_phi[:, None], chains, axis=1)
        if self.family.overdispersed:
            self.phi_scale = priors["overdispersion_scale"]
            noise = self.rng.standard_normal((self.batch,), 0).reshape(*self.lead, 1)
            self.log_phi = self.log_phi + 1.5 * self.mode.log_phi_sd[:, None] * noise
        self._expand()
        gram = self.hessian + np.diag(self.mode.ridge)
        # Columns of interactions have a prior of their own.
        shrunken = np.arange(self.k) >= self.k - self.sums.shrunken
        self.ridge = np.diag(np.where(shrunken, priors[INTERACTION_PRIOR] ** -2, 0.0))
        fit = np.repeat(self.mode.beta, chains, axis=0)[:, :, None]
        ones = np.ones((self.batch, 1, 1))
        self.coefficients = CoefficientBlocks(
            gram, fit, ones, priors, self.rng, self.sums.shrunken
        )
        self.value = self._kernel(self.coefficients.beta, self.log_phi)

    def state(self) -> Theta:
        blocks = self.coefficients
        state = {"beta": blocks.beta[:, :, 0]}
        if self.family.overdispersed:
            state["overdispersion"] = np.exp(self.log_phi).reshape(self.batch, 1)
        state["coefficient_scale"] = blocks.scale[:, 0]
        state["coefficient_correlation"] = blocks.correlation
        return state

    def draw_random_numbers(self, c: int) -> None:
        b, rng, tries = self.batch, self.rng, primitives.MAX_SHRINKS
        slices = c // SLICE_EVERY
        self.coefficients.draw_random_numbers(c)
        self.log_u = np.log(rng.random((c, b), 1))
        self.direction = rng.standard_normal((slices, b, self.k), 1)
        self.u_level = rng.random((slices, b), 1)
        self.u_angle = rng.random((slices, tries, b), 2)
        if self.family.overdispersed:
            self.u_phi = rng.random((c, 2, b), 2)
            self.u_phi_level = rng.random((slices, b), 1)
            self.u_phi_slice = rng.random((slices, tries, b), 2)

    def sweep(self, i: int) -> None:
        if self.family.overdispersed:
            self._overdispersion(i)
        self._coefficients(i)
        self.coefficients.update_prior(i)

    def _kernel(self, beta: FloatArray, log_phi: FloatArray) -> FloatArray:
        """Return the part (B, C) of the log-likelihood with beta (B x C, K, 1)."""
        eta = self.sums.eta(beta.reshape(*self.lead, self.k))
        return self.family.kernel(self.sums, eta, log_phi)

    # --- overdispersion ---------------------------------------------------------------------

    def _overdispersion(self, i: int) -> None:
        """Draw log phi | beta from the grid at the mode, and every fourth sweep by a slice."""
        proposal = self.mode.proposal
        assert proposal is not None
        eta = self.sums.eta(self.coefficients.beta.reshape(*self.lead, self.k))

        def log_density(log_phi: FloatArray) -> FloatArray:
            value = self.family.kernel(self.sums, eta, log_phi[..., None])
            value = value + self.family.rising(self.sums, log_phi[..., None])
            return value + overdispersion_log_prior(log_phi, self.phi_scale)

        current = self.log_phi[..., 0]
        uniforms = self.u_phi[i].reshape(2, *self.lead)
        new, of_new = proposal.draw(uniforms[0])
        ratio = log_density(new) - log_density(current) + proposal.log_density(current) - of_new
        current = np.where(np.log(uniforms[1]) < ratio, new, current)
        if i % SLICE_EVERY == 2:
            edge = np.full(self.lead, LOG_PHI_BRACKET)
            level = self.u_phi_level[i // SLICE_EVERY].reshape(self.lead)
            tries = self.u_phi_slice[i // SLICE_EVERY].reshape(-1, *self.lead)
            current = primitives.slice_sample(log_density, current, -edge, edge, level, tries)
        self.log_phi = current[..., None]
        self.value = self.family.kernel(self.sums, eta, self.log_phi)
        self._expand()

    # --- coefficients -----------------------------------------------------------------------

    def _expand(self) -> None:
        """Expand the likelihood in beta about the mode.

        It is -b' hessian b / 2 + linear' b, (B x C, ...).
        """
        slope, curvature = self.family.slopes(self.sums, self.eta_at_mode, self.log_phi)
        hessian = self.sums.gram(curvature)
        linear = hessian @ self.mode.beta[:, None, :, None] + (slope @ self.sums.x)[..., None]
        # Without phi all chains of a database share it.
        shape = (*self.lead, self.k)
        self.hessian = np.broadcast_to(hessian, (*shape, self.k)).reshape(-1, self.k, self.k)
        self.linear = np.broadcast_to(linear[..., 0], shape).reshape(-1, self.k)

    def _excess(self, beta: FloatArray, value: FloatArray) -> FloatArray:
        """Return the log-likelihood (B, C) over its expansion at beta (B x C, K): (B x C,)."""
        quadratic = 0.5 * (self.hessian @ beta[:, :, None])[..., 0] - self.linear
        return np.asarray(value.reshape(-1) + (beta * quadratic).sum(-1), dtype=np.float64)

    def _coefficients(self, i: int) -> None:
        """Draw beta | phi, D, Omega: the normal times exp(excess)."""
        blocks = self.coefficients
        inverse_scale = 1.0 / blocks.scale[:, 0]
        precision = np.asarray(self.hessian + self.ridge, dtype=np.float64)
        free = slice(blocks.free)
        prior = blocks.inverse_correlation * inverse_scale[:, :, None] * inverse_scale[:, None, :]
        precision[:, free, free] += prior
        root = np.asarray(np.linalg.cholesky(precision).swapaxes(-1, -2), dtype=np.float64)
        mean = _solved(precision, self.linear)
        current: FloatArray = blocks.beta[:, :, 0]
        proposal: FloatArray = mean + _solved(root, blocks.n_beta[i])
        value = self._kernel(proposal, self.log_phi)
        old, new = self._excess(current, self.value), self._excess(proposal, value)
        accept = self.log_u[i] < new - old
        current = np.where(accept[:, None], proposal, current)
        self.value = np.where(accept.reshape(self.lead), value, self.value)
        if i % SLICE_EVERY == 1:
            deviation = _solved(root, self.direction[i // SLICE_EVERY])
            current = self._slice(i // SLICE_EVERY, current, mean, deviation)
        blocks.beta = current[:, :, None]

    def _slice(
        self, i: int, current: FloatArray, mean: FloatArray, direction: FloatArray
    ) -> FloatArray:
        """Take an elliptical slice (Murray et al. 2010) about the normal's mean in all chains."""
        threshold = self._excess(current, self.value) + np.log(self.u_level[i])
        centred = current - mean
        angle = 2.0 * np.pi * self.u_angle[i, 0]
        low, high = angle - 2.0 * np.pi, angle.copy()
        result, result_value = current, self.value
        pending = np.ones(self.batch, dtype=bool)
        for uniform in self.u_angle[i, 1:]:
            turned = np.cos(angle)[:, None] * centred + np.sin(angle)[:, None] * direction
            proposal = mean + turned
            value = self._kernel(proposal, self.log_phi)
            taken = pending & (self._excess(proposal, value) >= threshold)
            result = np.where(taken[:, None], proposal, result)
            result_value = np.where(taken.reshape(self.lead), value, result_value)
            pending &= ~taken
            if not pending.any():
                break
            low, high = np.where(angle < 0, angle, low), np.where(angle < 0, high, angle)
            angle = low + (high - low) * uniform
        self.value = result_value
        return result


def _solved(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Solve matrices (B, K, K) for vectors (B, K): (B, K)."""
    return np.asarray(np.linalg.solve(matrix, vector[:, :, None])[..., 0], dtype=np.float64)
