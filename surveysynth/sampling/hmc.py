"""Hamiltonian Monte Carlo for many chains side by side (Neal 2011).

The sampler knows a log density with its gradient and nothing of surveys. Points x are whitened by
the curvature at a mode, so that z is nearly standard normal; step size and whitening are learned in
the warm-up from points and gradients, and nothing is learned after it. Some coordinates, such as
the scale of effects that noise hides, have no useful mode: these are held while the mode is sought,
and a move of the caller's own can draw them anew between trajectories. Where blocks of coordinates
meet each other through the rest alone, no matrix of all coordinates is made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray

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
#: Wide brackets of slices on log scales, and points tried in one.
BRACKET, TRIES = 8.0, 40


@dataclass(frozen=True)
class Whitening:
    """Coordinates z of points x in which all has about the scale 1, (D,) each.

    Of coordinates that G blocks have apart, ``apart`` (G, L), each block meets the others through
    the ``shared`` (S,) alone: x = center + y with y_shared = root z_shared and y_g = along_g
    y_shared + roots_g z_g. root (S, S), roots (G, L, L), along (G, L, S); ``inverse`` and
    ``inverses`` are those of the roots.
    """

    center: FloatArray
    shared: IntArray
    apart: IntArray
    root: FloatArray
    inverse: FloatArray
    roots: FloatArray
    inverses: FloatArray
    along: FloatArray

    def point(self, z: FloatArray) -> FloatArray:
        """Return points (b, D) of z (b, D)."""
        y = np.empty_like(z)
        y[:, self.shared] = own = z[:, self.shared] @ self.root.T
        y[:, self.apart] = self._of_shared(own) + _each(self.roots, z[:, self.apart])
        return np.asarray(self.center + y)

    def coordinates(self, x: FloatArray) -> FloatArray:
        """Return z (b, D) of points (b, D)."""
        y, z = x - self.center, np.empty_like(x)
        z[:, self.shared] = y[:, self.shared] @ self.inverse.T
        left = y[:, self.apart] - self._of_shared(y[:, self.shared])
        z[:, self.apart] = _each(self.inverses, left)
        return z

    def slopes(self, gradients: FloatArray) -> FloatArray:
        """Return gradients in z (b, D) of gradients in x (b, D)."""
        result, of_blocks = np.empty_like(gradients), gradients[:, self.apart]
        whole = gradients[:, self.shared] + of_blocks.reshape(len(gradients), -1) @ self._along
        result[:, self.shared] = whole @ self.root
        result[:, self.apart] = _each(self.roots.swapaxes(-1, -2), of_blocks)
        return result

    def updated(self, points: FloatArray, gradients: FloatArray) -> "Whitening":
        """Return the whitening that N points (N, D) with gradients suggest, shrunken to this one.

        Under a normal distribution with covariance S gradients are -S^-1 (x - center). Any points
        then give S at once, as the matrix between covariances C of points and G of gradients with S
        G S = C: the geometric mean of C and G^-1 (Seyboldt et al. 2026). Both are shrunken to the
        identity in these coordinates, and so is S, for the shared ones and each block by itself.
        """
        z, slopes = self.coordinates(points), self.slopes(gradients)
        root, inverse = _between(z[:, self.shared], slopes[:, self.shared])
        blocks = (each[:, self.apart].swapaxes(0, 1) for each in (z, slopes))
        roots, inverses = _between(*blocks)
        return replace(
            self, center=points.mean(0), root=self.root @ root, inverse=inverse @ self.inverse,
            roots=self.roots @ roots, inverses=inverses @ self.inverses,
        )  # fmt: skip

    @property
    def _along(self) -> FloatArray:
        return self.along.reshape(-1, self.shared.size)

    def _of_shared(self, y: FloatArray) -> FloatArray:
        """Return what (b, G, L) blocks have of shared coordinates (b, S)."""
        return np.asarray(y @ self._along.T).reshape(len(y), *self.apart.shape)


def _each(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return matrices (G, L, L) times vectors (b, G, L)."""
    return np.asarray((matrices @ vectors.transpose(1, 2, 0)).transpose(2, 0, 1))


def _between(points: FloatArray, slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the root (.., k, k), and its inverse, of S of points and slopes (.., N, k)."""
    count, size = points.shape[-2:]
    share, few = np.array([count, PRIOR_POINTS]) / (count + PRIOR_POINTS)
    off = (each - each.mean(-2, keepdims=True) for each in (points, slopes))
    of_points, of_slopes = (
        share * each.swapaxes(-1, -2) @ each / (count - 1) + few * np.eye(size) for each in off
    )
    lower = np.linalg.cholesky(of_slopes)
    upper = lower.swapaxes(-1, -2)
    values, vectors = np.linalg.eigh(upper @ of_points @ lower)
    quarter = np.maximum(values, ROUNDING * values[..., -1:])[..., None, :] ** 0.25
    root = np.linalg.inv(upper) @ (vectors * quarter)
    return np.asarray(root), np.asarray((vectors / quarter).swapaxes(-1, -2) @ upper)


def find_mode(
    density: LogDensity, start: FloatArray, held: BoolArray, iterations: int
) -> FloatArray:
    """Return the mode (D,) by L-BFGS from ``start``, coordinates ``held`` (D,) where they are."""
    from scipy.optimize import minimize

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
    density: LogDensity,
    mode: FloatArray,
    held: BoolArray,
    curvature: FloatArray,
    apart: IntArray | None = None,
) -> Whitening:
    """Return the whitening by minus the second derivatives at a mode (D,).

    By central differences of gradients. Of coordinates that are ``held`` only the given curvature
    (D,) counts. apart (G, L): coordinates of G blocks, none of which is held, that have no mixed
    derivatives with other blocks. One difference in all of them therefore serves for all blocks.
    """
    apart = np.empty((0, 0), dtype=np.int64) if apart is None else apart
    shared = np.setdiff1d(np.arange(len(mode)), apart)
    free = ~held[shared]

    def curvatures(ways: FloatArray) -> FloatArray:
        slopes = [
            density(mode - DIFFERENCE * part)[1] - density(mode + DIFFERENCE * part)[1]
            for part in np.array_split(ways, -(-len(ways) // AT_ONCE))
        ]
        return np.asarray(np.concatenate(slopes) / (2.0 * DIFFERENCE))

    def rooted(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
        values, vectors = np.linalg.eigh(0.5 * (matrices + matrices.swapaxes(-1, -2)))
        sizes = np.sqrt(np.maximum(values, LEAST_CURVATURE))[..., None, :]
        return vectors / sizes, (vectors * sizes).swapaxes(-1, -2)

    groups, size = apart.shape
    each, together = np.zeros((free.sum(), len(mode))), np.zeros((size, len(mode)))
    each[np.arange(len(each)), shared[free]] = 1.0
    together[np.arange(size), apart] = 1.0
    of_each = curvatures(each)
    roots, inverses = np.zeros((2, groups, size, size))
    along = np.zeros((groups, size, shared.size))
    matrix = np.diag(np.where(free, 0.0, curvature[shared]))
    matrix[np.ix_(free, free)] = of_each[:, shared[free]]
    if groups:
        roots, inverses = rooted(curvatures(together)[:, apart].swapaxes(0, 1))
        mixed = of_each[:, apart].transpose(1, 2, 0)
        along[..., free] = -roots @ (roots.swapaxes(-1, -2) @ mixed)
        matrix[np.ix_(free, free)] += np.tensordot(mixed, along[..., free], 2 * ((0, 1),))
    return Whitening(mode, shared, apart, *rooted(matrix), roots, inverses, along)


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
        rng = self.rng
        step = np.exp(self.log_step) * rng.uniform(0.8, 1.2)
        count = min(max(1, round(LENGTH * rng.uniform(0.5, 1.5) / step)), MOST_STEPS)
        step *= SHORTER if short else 1.0
        momentum = rng.standard_normal(self.z.shape)
        energy = self.value - 0.5 * (momentum**2).sum(1)
        z, value, gradient = self.z, self.value, self.gradient
        momentum = momentum + 0.5 * step * self.whitening.slopes(gradient)
        for i in range(count):
            z = z + step * momentum
            value, gradient = self.density(self.whitening.point(z))
            length = step if i < count - 1 else 0.5 * step
            momentum = momentum + length * self.whitening.slopes(gradient)
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


def slice_wide(
    log_density: Callable[[FloatArray], FloatArray], x: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return draws of independent scalars x by a slice in a bracket placed at random about each."""
    low = x - BRACKET * rng.random(x.shape)
    high = low + BRACKET
    level = log_density(x) + np.log(rng.random(x.shape))
    result, waiting = x.copy(), np.ones(x.shape, dtype=bool)
    for _ in range(TRIES):
        tried = low + (high - low) * rng.random(x.shape)
        inside = waiting & (log_density(tried) >= level)
        result = np.where(inside, tried, result)
        waiting &= ~inside
        if not waiting.any():
            break
        low = np.where(waiting & (tried < x), tried, low)
        high = np.where(waiting & (tried >= x), tried, high)
    return np.asarray(result)
