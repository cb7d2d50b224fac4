"""Hamiltonian Monte Carlo for many chains side by side (Neal 2011).

The sampler knows a log density with its gradient and nothing of surveys. Points x = center + root z
are whitened by the curvature at a mode, so that z is nearly standard normal; step size, center and
root are learned in the warm-up from points and gradients, and nothing is learned after it. Some
coordinates, such as the scale of effects that noise hides, have no useful mode: these are held
while the mode is sought, and a move of the caller's own can draw them anew between trajectories.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from surveysynth._support.types import BoolArray, FloatArray

#: Return log densities (b,) and gradients (b, D) at points (b, D); -inf outside the support.
LogDensity = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
#: Return other points (b, D) that leave the density invariant.
Move = Callable[[FloatArray, np.random.Generator], FloatArray]

#: Acceptance that the step size aims at, and its first guess.
ACCEPTANCE, FIRST_STEP = 0.8, 0.2
#: Trajectories have this length on average, between half and one and a half times as much: more
#: than a quarter of the period of a normal, since posteriors have longer tails, but not half of it,
#: which turns every point into its opposite.
LENGTH, MOST_STEPS = 2.0, 24
#: One round in so many takes steps this much shorter, and no more of them: where a scale of effects
#: is far above its typical size curvature is too, and at one step size chains would stay there.
SHORT_ROUND, SHORTER = 10, 0.2
#: Chains start at this many SDs about the mode.
START = 0.3
#: Difference of coordinates in second derivatives, and points that are evaluated together.
DIFFERENCE, AT_ONCE = 1e-3, 32
#: Least curvature of a direction, in units of the coordinates; Newton needs no more of it.
LEAST_CURVATURE = 0.3
#: Share of a variance that rounding may hide.
ROUNDING = 1e-9
#: Learned covariances of N points have the weight N / (N + PRIOR_POINTS).
PRIOR_POINTS = 5.0
#: Shares of the warm-up after which the whitening is learned anew, each from the later half of what
#: came before the one before it, and all rounds since.
WINDOWS = 0.1, 0.25, 0.5, 0.75
#: Chains this many median deviations below the median log density start again from another chain.
STUCK = 6.0


@dataclass(frozen=True)
class Whitening:
    """Coordinates z of points x = center + root z: center (D,), root and its inverse (D, D)."""

    center: FloatArray
    root: FloatArray
    inverse: FloatArray

    def point(self, z: FloatArray) -> FloatArray:
        """Return points (b, D) of z (b, D)."""
        return np.asarray(self.center + z @ self.root.T)

    def coordinates(self, x: FloatArray) -> FloatArray:
        """Return z (b, D) of points (b, D)."""
        return np.asarray((x - self.center) @ self.inverse.T)

    def updated(self, points: FloatArray, gradients: FloatArray) -> "Whitening":
        """Return the whitening that N points (N, D) with gradients suggest, shrunken to this one.

        Under a normal distribution with covariance S gradients are -S^-1 (x - center). Any points
        then give S at once, as the matrix between covariances C of points and G of gradients with S
        G S = C: the geometric mean of C and G^-1 (Seyboldt et al. 2026). Both are shrunken to the
        identity in these coordinates, and so is S.
        """
        z, slopes = self.coordinates(points), gradients @ self.root
        size = z.shape[1]
        share, few = np.array([len(z), PRIOR_POINTS]) / (len(z) + PRIOR_POINTS)
        of_points, of_slopes = (share * np.cov(each.T) + few * np.eye(size) for each in (z, slopes))
        lower = np.linalg.cholesky(of_slopes)
        values, vectors = np.linalg.eigh(lower.T @ of_points @ lower)
        quarter = np.maximum(values, ROUNDING * values[-1]) ** 0.25
        root = solve_triangular(lower, vectors * quarter, lower=True, trans="T")
        inverse = (vectors / quarter).T @ lower.T
        return Whitening(
            points.mean(0), np.asarray(self.root @ root), np.asarray(inverse @ self.inverse)
        )


def find_mode(
    density: LogDensity, start: FloatArray, held: BoolArray, iterations: int
) -> FloatArray:
    """Return the mode (D,) by L-BFGS from ``start``, coordinates ``held`` (D,) where they are."""
    free = ~held

    def negative(values: FloatArray) -> tuple[float, FloatArray]:
        x = start.copy()
        x[free] = values
        value, gradient = density(x[None])
        if not np.isfinite(value[0]):
            return 1e10, np.zeros_like(values)
        return -float(value[0]), -gradient[0, free]

    found = minimize(
        negative, start[free], jac=True, method="L-BFGS-B",
        options={"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20},
    )  # fmt: skip
    x = start.copy()
    x[free] = found.x
    return x


def whitening_at(
    density: LogDensity, mode: FloatArray, held: BoolArray, curvature: FloatArray
) -> Whitening:
    """Return the whitening by minus the second derivatives at a mode (D,).

    By central differences of gradients. Of coordinates that are ``held`` only the given curvature
    (D,) counts.
    """
    size, free = len(mode), np.flatnonzero(~held)
    steps = DIFFERENCE * np.eye(size)[free]
    slopes = np.concatenate(
        [
            density(mode + part)[1][:, free] - density(mode - part)[1][:, free]
            for part in np.array_split(steps, -(-len(free) // AT_ONCE))
        ]
    )
    matrix = np.diag(np.where(held, curvature, 0.0))
    matrix[np.ix_(free, free)] = -0.25 * (slopes + slopes.T) / DIFFERENCE
    values, vectors = np.linalg.eigh(matrix)
    sizes = np.sqrt(np.maximum(values, LEAST_CURVATURE))
    return Whitening(mode, np.asarray(vectors / sizes), np.asarray((vectors * sizes).T))


class HamiltonianChains:
    """Chains at points x (chains, D), with their log densities and gradients."""

    def __init__(
        self,
        density: LogDensity,
        whitening: Whitening,
        chains: int,
        rng: np.random.Generator,
        move: Move | None = None,
    ) -> None:
        """Start about the center, nearer to it where the density is zero."""
        self.density, self.whitening, self.rng, self.move = density, whitening, rng, move
        self.first = whitening
        self.log_step = float(np.log(FIRST_STEP))
        self.z: FloatArray = START * rng.standard_normal((chains, len(whitening.center)))
        self.x, self.value, self.gradient = self._arrival()
        while (outside := ~np.isfinite(self.value)).any():
            self.z[outside] *= 0.5
            self.x, self.value, self.gradient = self._arrival()

    def warm_up(self, rounds: int) -> None:
        """Run rounds of which nothing is kept, learning step size, center and root."""
        visited, since, begun = list[tuple[FloatArray, FloatArray]](), 0, 0
        for i in range(rounds):
            accepted = self.round(short := i % SHORT_ROUND == SHORT_ROUND - 1)
            if not short:
                self.log_step += (accepted - ACCEPTANCE) / float(np.sqrt((i - since) / 3 + 1))
            visited.append((self.x, self.gradient))
            if i in (rounds // 4, rounds // 2):
                self._restart_stuck()
            if i + 1 in [round(share * rounds) for share in WINDOWS]:
                points, gradients = map(np.concatenate, zip(*visited[begun // 2 :], strict=True))
                # Shrunken to the first one: to the last one it could collapse, stage after stage.
                self.whitening = self.first.updated(points, gradients)
                self.z = self.whitening.coordinates(self.x)
                self.log_step = max(self.log_step, float(np.log(FIRST_STEP)))
                since, begun = i, i + 1

    def sample(self, rounds: int) -> FloatArray:
        """Run rounds and return the points (chains, rounds, D)."""
        kept = np.empty((len(self.x), rounds, self.x.shape[1]))
        for i in range(rounds):
            self.round(i % SHORT_ROUND == SHORT_ROUND - 1)
            kept[:, i] = self.x
        return kept

    def round(self, short: bool = False) -> float:
        """Run one trajectory of each chain, then the caller's move; return the mean acceptance."""
        rng, root = self.rng, self.whitening.root
        step = np.exp(self.log_step) * rng.uniform(0.8, 1.2)
        count = min(max(1, round(LENGTH * rng.uniform(0.5, 1.5) / step)), MOST_STEPS)
        step *= SHORTER if short else 1.0
        momentum = rng.standard_normal(self.z.shape)
        energy = self.value - 0.5 * (momentum**2).sum(1)
        z, value, gradient = self.z, self.value, self.gradient
        momentum = momentum + 0.5 * step * (gradient @ root)
        for i in range(count):
            z = z + step * momentum
            value, gradient = self.density(self.whitening.point(z))
            momentum = momentum + (step if i < count - 1 else 0.5 * step) * (gradient @ root)
        with np.errstate(over="ignore", invalid="ignore"):
            change = value - 0.5 * (momentum**2).sum(1) - energy
            chance = np.exp(np.minimum(0.0, np.where(np.isnan(change), -np.inf, change)))
        accepted = rng.random(len(z)) < chance
        self.z = np.where(accepted[:, None], z, self.z)
        self.value = np.where(accepted, value, self.value)
        self.gradient = np.where(accepted[:, None], gradient, self.gradient)
        self.x = self.whitening.point(self.z)
        if self.move is not None:
            self.z = self.whitening.coordinates(self.move(self.x, rng))
            self.x, self.value, self.gradient = self._arrival()
        return float(chance.mean())

    def _arrival(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        x = self.whitening.point(self.z)
        return (x, *self.density(x))

    def _restart_stuck(self) -> None:
        middle = np.median(self.value)
        deviation = np.median(np.abs(self.value - middle))
        stuck = self.value < middle - STUCK * deviation - 10.0
        if stuck.any():
            source = self.rng.choice(np.flatnonzero(~stuck), int(stuck.sum()))
            self.z[stuck] = self.z[source]
            self.x, self.value, self.gradient = self._arrival()
