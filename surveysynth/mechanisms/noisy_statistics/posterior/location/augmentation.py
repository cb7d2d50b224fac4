"""Data augmentation for noisy counts and moments by block: the confidential ones as unknowns.

A sweep (``begin``, ``finish``) leaves the posterior of (theta, n, T, W) given the noisy numbers
invariant:

- xi and eta, that is T and W of every block, by elliptical slices given n and theta;
- counts n, pair by pair of categories, from the multinomial times the noise on counts, with xi and
  eta held; accepted group by group on what moments say of them;
- W by a slice in Bartlett's coordinates besides, which moves where records are few.

With theta given n, T and W, the model's own sweep, they make up a Gibbs sampler. In between theta
may move with xi and eta held (``log_factor``, ``take``), T and W along with it: given T and W its
variances creep wherever the noise exceeds what the records tell (Yu & Meng 2011). A block whose
noisy number of records is small is left out, T and W with it: a rule on what is published, under
which the posterior given the rest is exact.
"""

from collections.abc import Callable, Sequence

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.latent import (
    exchanged,
    start_counts,
    tournament,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moment_law import (
    Geometry,
    Law,
    PatternTarget,
    across,
    back,
    first,
    last,
    symmetric_axes,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.mechanisms.noisy_statistics.posterior.slices import shrinking_angles
from surveysynth.mechanisms.noisy_statistics.posterior.wishart import NoisyScatter
from surveysynth.models.general_location.stats import GroupRows
from surveysynth.sampling.sweeps import Streams

#: Tries of a slice of T and W, which mostly takes the first; of one where records are few.
TRIES, BARTLETT_TRIES = 3, 30
#: Degrees of freedom below which a Wishart is far from normal. From 40 to 100, chains of a cell
#: could stay at half of its variance for a hundred rounds, where the noise is about as large.
FEW = 100.0
#: Rounds of exchanges that are taken or left together.
ROUNDS_AT_ONCE = 3
#: Share by which correlations of a W without a root in digits are made smaller.
SMALLER = 1e-9
#: Least share of a column's declared variance that chains start from as its residual variance.
LEAST_START = 0.05

#: Of each pattern.
Laws = list[Law]
#: The number of a pattern to its coefficients (B, width, q) in units of z, and Sigma (q, q, B, G)
#: in those of u.
PatternLaw = Callable[[int], tuple[FloatArray, FloatArray]]


class LocationAugmentation:
    """Counts (B, C, D) of B chains and, of each pattern, T (B, G, r, q) and W (B, G, q, q)."""

    def __init__(self, target: LocationTarget, rng: Streams) -> None:
        self.target, self.rng = target, rng
        self.batch = target.counts.shape[0]
        self.rounds = tournament(target.counts.shape[2])
        self.turn, self.at_once = 0, min(ROUNDS_AT_ONCE, len(self.rounds))
        inflation = np.exp(0.3 * rng.standard_normal((self.batch,), 0))
        self.observe(start_counts(target.counts, target.sizes, target.count_sd))
        pairs = zip(target.targets, self.geometry, strict=True)
        starts = [_start(each, geometry, inflation) for each, geometry in pairs]
        self.cross = [cross for cross, _ in starts]
        self.scatter = [scatter for _, scatter in starts]

    def of(self, target: PatternTarget, counts: IntArray) -> FloatArray:
        """Return counts (B, R) of a pattern's rows."""
        return counts.reshape(len(counts), -1)[:, target.row].astype(np.float64)

    def observe(self, counts: IntArray) -> None:
        """Set the counts (B, C, D), and what follows from them for every pattern."""
        self.counts = counts
        self.geometry = [
            Geometry.of(each, self.of(each, counts)) for each in self.target.targets
        ]

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, cells, rng = self.batch, self.target.counts.shape[1], self.rng
        self.normals, self.uniforms = [], []
        for each in self.target.targets:
            g, (r, q) = each.groups, each.cross.shape[2:]
            fresh = rng.standard_normal((c, 3, q, q, b, g), 4)
            self.normals.append((rng.standard_normal((c, 2, r, q, b, g), 4), fresh))
            self.uniforms.append(
                (rng.random((c, 3, b, g), 2), rng.random((c, 2, TRIES, b, g), 3))
            )
        self.u_bartlett = rng.random((c, BARTLETT_TRIES, b, self.target.shape.groups), 2)
        pairs = max((len(first) for first, _ in self.rounds), default=0)
        self.u_pairs = rng.random((c, 2 * self.at_once, b, cells, pairs), 2)
        self.log_u = np.log(rng.random((c, b, self.target.shape.groups), 1))

    def start_at(self, law_of: PatternLaw) -> None:
        """Draw T and W afresh from standard normals xi and eta.

        An eta far out would stay there: it is drawn back by steps that become ever shorter."""
        for p, law in enumerate(self.laws_at(law_of)):
            xi = self.rng.standard_normal(law.middle.shape, 2)
            eta = self.rng.standard_normal(law.sigma.shape, 2)
            eta = (eta + eta.swapaxes(0, 1)) / np.sqrt(2.0)
            self.cross[p], scatter = (first(each) for each in law.moments(xi, eta))
            # Of few records such a W may be none: its mean is one.
            mean = first(law.geometry.df * law.sigma)
            self.scatter[p] = np.where(_regular(scatter)[..., None, None], scatter, mean)

    def begin(self, i: int, law_of: PatternLaw, log_p: FloatArray) -> None:
        """Draw xi, eta and counts at theta, from laws and log probabilities (B, C, D)."""
        self.laws = self.laws_at(law_of)
        self.held = [self._slices(i, p, law) for p, law in enumerate(self.laws)]
        if self.rounds:
            self._exchange(i, log_p)
        self.inner = self._inner(self.laws)

    def laws_at(self, law_of: PatternLaw) -> Laws:
        """Return the law of every pattern at the current counts."""
        parts = zip(self.target.patterns, self.target.targets, self.geometry, strict=True)
        laws = []
        for p, (number, target, geometry) in enumerate(parts):
            coefficients, sigma = law_of(number)
            laws.append(Law.of(target, geometry, self.middle(p, coefficients), in_digits(sigma)))
        return laws

    def with_covariances(self, laws: Laws, sigmas: Sequence[FloatArray]) -> Laws:
        """Return laws at other covariances (q, q, B, G) of each pattern."""
        pairs = zip(laws, sigmas, strict=True)
        return [law.with_covariance(in_digits(sigma)) for law, sigma in pairs]

    def with_means(self, laws: Laws, coefficients: FloatArray) -> Laws:
        """Return laws at other coefficients (B, width, q) of all columns."""
        return [
            law.with_means(self.middle(p, coefficients[..., self.there(p)]))
            for p, law in enumerate(laws)
        ]

    def _inner(self, laws: Laws) -> list[tuple[FloatArray, FloatArray]]:
        """Return xi in the axes of G, and eta."""
        pairs = zip(laws, self.held, strict=True)
        return [(across(law.geometry.vectors, xi), eta) for law, (xi, eta) in pairs]

    def log_factor(self, laws: Laws) -> FloatArray:
        """Return the log density (B, G) of the noisy moments with xi, eta and counts fixed."""
        pairs = zip(laws, self.inner, strict=True)
        return np.asarray(sum(law.log_factor(*held) for law, held in pairs))

    def take(self, accept: BoolArray, laws: Laws) -> None:
        """Replace the laws of the blocks (B, G) that accept: T and W move along."""
        pairs = zip(laws, self.laws, strict=True)
        self.laws = [old.chosen(accept, new) for new, old in pairs]
        self.geometry = [law.geometry for law in self.laws]

    def finish(self, i: int) -> None:
        """Set T and W from xi and eta, and draw W once more."""
        for p, (law, held) in enumerate(zip(self.laws, self.inner, strict=True)):
            used = law.target.used[..., None, None]
            cross, scatter = (first(each) for each in law.moments(*held))
            scatter = self._by_bartlett(i, p, law, scatter, cross)
            scatter = np.where(law.target.told[..., None, None], scatter, self._untold(i, p, law))
            # What is not looked at must not stray to where numbers end.
            self.cross[p] = np.where(used, cross, 0.0)
            self.scatter[p] = np.where(used, scatter, np.eye(law.target.q))

    def _untold(self, i: int, p: int, law: Law) -> FloatArray:
        """Draw W (B, G, q, q) of the law alone, of as many records as there are columns at most."""
        root = np.linalg.cholesky(first(law.sigma))
        there = np.arange(law.target.q) < law.geometry.free[..., None]
        drawn = (root @ first(self.normals[p][1][i, 2])) * there[..., None, :]
        return np.asarray(drawn @ drawn.swapaxes(-1, -2))

    def there(self, p: int) -> BoolArray:
        """Return which columns (q,) a pattern has."""
        return np.asarray(self.target.shape.patterns[self.target.patterns[p]], dtype=bool)

    def middle(
        self, p: int, coefficients: FloatArray, target: PatternTarget | None = None
    ) -> FloatArray:
        """Return M (r, q, B, G) in the axes of A, in units of u, of coefficients (B, width, q).

        target: of as many chains, those of the augmentation by default."""
        there, target = self.there(p), target or self.target.targets[p]
        centre, spread = self.target.centre[there], self.target.spread[there]
        about = (coefficients - self.target.ones[:, None] * centre) / spread
        flat = target.link.reshape(-1, about.shape[1]) @ about  # all groups at once
        return last(flat.reshape(len(about), *target.link.shape[:2], target.q) - target.off)

    def _slices(self, i: int, p: int, law: Law) -> tuple[FloatArray, FloatArray]:
        """Draw xi and eta of a pattern by elliptical slices, from its T and W."""
        (fresh_xi, fresh), (level, angle) = self.normals[p], self.uniforms[p]
        fresh_eta = (fresh[i, :2] + fresh[i, :2].swapaxes(1, 2)) / np.sqrt(2.0)
        xi = law.xi_of(last(self.cross[p]), fresh_xi[i, 1])
        eta = law.eta_of(law.gap(law.cross_at(xi)), last(self.scatter[p]), fresh_eta[1])
        xi, value = elliptical(
            xi, fresh_xi[i, 0], lambda x: law.log_factor(x, eta), law.log_factor(xi, eta),
            level[i, 0], angle[i, 0],
        )  # fmt: skip
        eta, _ = elliptical(
            eta, fresh_eta[0], lambda x: law.log_factor(xi, x), value, level[i, 1], angle[i, 1]
        )
        return across(back(law.geometry.vectors), xi), eta

    def _exchange(self, i: int, log_p: FloatArray) -> None:
        """Draw counts given xi and eta: some rounds of pairs in every cell.

        There and back, so that the move is the same when it is run backwards."""
        target = self.target
        some = [self.rounds[(self.turn + k) % len(self.rounds)] for k in range(self.at_once)]
        self.turn += self.at_once
        proposal = self.counts
        for k, pairs in enumerate([*some, *some[-2::-1]]):
            proposal = exchanged(
                proposal, log_p, target.counts, target.count_sd, pairs,
                self.u_pairs[i, k, :, :, : len(pairs[0])],
            )  # fmt: skip
        proposed = [law.with_counts(self.of(law.target, proposal)) for law in self.laws]
        values = []
        for laws in (proposed, self.laws):
            self.inner = self._inner(laws)
            values.append(self.log_factor(laws))
        accept = self.log_u[i] < difference(*values)
        by_cell = accept[:, target.shape.group]
        self.counts = np.where(by_cell[:, :, None], proposal, self.counts)
        self.take(accept, proposed)

    def _by_bartlett(
        self, i: int, p: int, law: Law, scatter: FloatArray, cross: FloatArray
    ) -> FloatArray:
        """Draw W once more (B, G, q, q) where records are few; elsewhere normals do as well."""
        fresh, (level, _) = self.normals[p][1], self.uniforms[p]
        target, q, df = law.target, law.target.q, law.geometry.df
        scatter, used = _with_roots(scatter, target.used & target.told & (df < FEW))
        moved = scatter.copy()
        if used.any():
            row, column = np.tril_indices(q)
            observed = target.squares[used] - law.geometry.explained(cross)[used]
            noise = target.squares_sd * (1.0 + (np.sqrt(2.0) - 1.0) * np.eye(q))
            df = np.broadcast_to(df, used.shape)[used]
            noisy = NoisyScatter(df, first(law.sigma)[used], observed, noise)
            moved[used] = noisy.draw_by_bartlett(
                scatter[used], fresh[i, 2][row, column][:, used].T, level[i, 2][used],
                shrinking_angles(self.u_bartlett[i][:, used].T),
            )  # fmt: skip
        return moved

    def rows(self) -> GroupRows:
        """Return rows with T and W of all blocks in use, in units of z: what fits start from."""
        shape, targets = self.target.shape, self.target.targets
        parts = [self._rows_of(p) for p in range(len(targets))]
        x, z, present = (np.concatenate([part[k] for part in parts], axis=2) for k in range(3))
        total = np.zeros((self.batch, shape.groups, shape.q))
        for number, target, geometry in zip(
            self.target.patterns, targets, self.geometry, strict=True
        ):
            total += (geometry.total * target.used)[..., None] * shape.patterns[number]
        return GroupRows(x, z, present, total)

    def _rows_of(self, p: int) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return rows with the moments of a pattern: one for each axis of G, and a root of W."""
        target, shape, geometry = self.target.targets[p], self.target.shape, self.geometry[p]
        there = np.flatnonzero(self.there(p))
        used, length = target.used[..., None, None], first(np.sqrt(geometry.lam))[..., None]
        axes = first(back(geometry.vectors))
        inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        values, vectors = np.linalg.eigh(self.scatter[p])
        root = np.sqrt(np.maximum(values, 0.0))[..., None] * vectors.swapaxes(-1, -2)
        spread, centre = self.target.spread[there], self.target.centre[there]
        r, q = length.shape[-2], there.size
        x = np.zeros((self.batch, target.groups, r + q, shape.width))
        x[:, :, :r] = length * (axes @ target.link)
        z = np.zeros((self.batch, target.groups, r + q, shape.q))
        about = (inverse * (axes @ self.cross[p]) + length * (axes @ target.off)) * spread
        z[:, :, :r, there] = about + (x[:, :, :r] @ self.target.ones)[..., None] * centre
        z[:, :, r:, there] = root * spread
        present = np.broadcast_to(used & self.there(p), z.shape)
        return x * used, z * used, present


def in_digits(sigma: FloatArray) -> FloatArray:
    """Return covariances (q, q, B, G) in units of u that have not lost their digits."""
    # What has overflowed is refused by its prior.
    diagonal = np.einsum("jj...->j...", sigma)
    sound = np.isfinite(sigma).all((0, 1))
    largest = np.where(sound, diagonal.max(0), 1.0)
    eye = np.eye(len(sigma))[..., None, None]
    # Far below all noise: no chain strays to where a covariance has no digits.
    return np.where(sound, sigma, eye) + (1e-10 + 1e-11 * largest) * eye


def _regular(scatter: FloatArray) -> BoolArray:
    """Return which W (B, G, q, q) have a root in digits; others are left to the next sweep."""
    diagonal = np.einsum("...qq->...q", scatter)
    with np.errstate(invalid="ignore"):
        sound = np.isfinite(scatter).all((-1, -2)) & (diagonal > 1e-100).all(-1)
    scatter = np.where(sound[..., None, None], scatter, np.eye(scatter.shape[-1]))
    size = np.sqrt(np.einsum("...qq->...q", scatter))
    values, _ = symmetric_axes(last(scatter / (size[..., :, None] * size[..., None, :])))
    return np.asarray(sound & (values.min(0) > 1e-12))


def _with_roots(scatter: FloatArray, few: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Return W (B, G, q, q), and which of few records (B, G) have a root.

    Those without one in digits have smaller correlations.

    Of as many degrees of freedom as columns the density grows toward singular W. One draw of a
    million has no root in digits, and a chain that no move takes from there stays for good.
    """
    regular = _regular(scatter)
    lost = few & ~regular
    if lost.any():
        smaller = np.where(np.eye(scatter.shape[-1], dtype=bool), 1.0, 1.0 - SMALLER)
        scatter = np.where(lost[..., None, None], smaller * scatter, scatter)
        regular = _regular(scatter)
    return scatter, few & regular


def possible(ratio: FloatArray) -> FloatArray:
    """Return log ratios of which those without a number, after an overflow, are refused."""
    return np.where(np.isnan(ratio), -np.inf, ratio)


def difference(new: FloatArray, old: FloatArray) -> FloatArray:
    """Return new - old; a state that is impossible may move to any that is possible."""
    with np.errstate(invalid="ignore"):
        result = new - old
    return np.where(np.isneginf(new), -np.inf, np.where(np.isneginf(old), np.inf, result))


def normal(white: FloatArray) -> FloatArray:
    """Return the log density (...) of standard normals (p, ...), up to a constant."""
    return np.asarray(-0.5 * (white * white).sum(0))


def elliptical(
    now: FloatArray,
    fresh: FloatArray,
    log_factor: Callable[[FloatArray], FloatArray],
    value: FloatArray,
    level: FloatArray,
    uniforms: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return elliptical slices of standard normals (..., B, G), each block its own, and values.

    value (B, G): the log factor now; level (B, G) and uniforms (tries, B, G). A block whose tries
    run out stays."""
    threshold = value + np.log(level)
    result, pending = now, np.ones(level.shape, dtype=bool)
    for angle in angles_of(uniforms):
        there = np.cos(angle) * now + np.sin(angle) * fresh
        then = log_factor(there)
        inside = pending & (then >= threshold)
        result, value = np.where(inside, there, result), np.where(inside, then, value)
        pending &= ~inside
        if not pending.any():
            break
    return result, value


def angles_of(uniforms: FloatArray) -> FloatArray:
    """Return successive tries (t, ...) on an ellipse from uniforms (t, ...)."""
    return np.moveaxis(shrinking_angles(np.moveaxis(uniforms, 0, -1)), -1, 0)


def _start(
    target: PatternTarget, geometry: Geometry, inflation: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return T~ shrunk, and W with no eigenvalue too small, in units of u.

    T~ is shrunk as for coefficients of the size of the spread; W is multiplied by ``inflation``
    (B,)."""
    lam = geometry.lam[:, None]
    signal = lam * lam + lam
    inner = geometry.cross * (signal / (signal + target.sigma**2))
    cross = first(across(back(geometry.vectors), inner))
    values, axes = np.linalg.eigh(target.squares - geometry.explained(cross))
    values = np.maximum(values, LEAST_START * geometry.df[..., None]) * inflation[:, None, None]
    return cross, (axes * values[..., None, :]) @ axes.swapaxes(-1, -2)
