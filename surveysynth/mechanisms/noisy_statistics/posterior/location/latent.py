"""The confidential moments of one pattern as unknowns: T and W of each group, given counts.

In units of u, with the rows a of A by group, n of them in each row and G = sum n a a':

    T | n, theta ~ N(G M, G (x) Sigma),  W | n, theta ~ Wishart(n - rank G, Sigma)
    T~ = T + E,  Q~ = W + T'G^+T + F

T and W are held as standard normals: xi, from which T follows given n, theta and T~, and eta, from
which W follows given T and Q~ by the normal approximation of the Wishart times the noise
(``wishart``). What is left of the target is

    N(T~; G M, G (x) Sigma + sigma^2 I) N(Q~ - T'G^+T; df Sigma, C + F)
        Wishart(W; df, Sigma) / N(W; df Sigma, C)

which changes little with xi, eta, or n. Axes without a record carry noise alone: their xi is
nothing but a random number.

Latent counts of categories given their noisy values, by exact exchanges between pairs:

    n_c. ~ Multinomial(n_c, p_c.),   n~_cd = n_cd + discrete Gaussian noise

n_c is public. Two combinations d, d' of a cell share s = n_cd + n_cd' records: given s, n_cd is
binomial times the noise, on whole numbers from 0 to s, and is drawn from that by inversion. Rounds
of a tournament bring every pair together.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import multigammaln

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.wishart import (
    NormalScatter,
    log_wishart_over_normal,
)

#: An axis of G that holds a smaller share of the largest holds no record.
NO_SHARE = 1e-9


@dataclass(frozen=True, repr=False)
class PatternTarget:
    """Noisy moments of a pattern with q columns, of B chains and G groups, and its public rows.

    row (R,): of the whole table; row_group (R,); rows A (R, r) in the axes of their group, zeros
    where a group has fewer; outer (R, G r r) sparse: their products aa' by group; link (G, r, P):
    x~ = a link; cross (B, G, r, q), squares (B, G, q, q); used (B, G): whether the group's moments
    are looked at; sigma, squares_sd (q, q): SDs of the noise.
    """

    row: IntArray
    row_group: IntArray
    rows: FloatArray
    outer: sparse.csr_array
    link: FloatArray
    cross: FloatArray
    squares: FloatArray
    used: BoolArray
    sigma: float
    squares_sd: FloatArray

    @property
    def q(self) -> int:
        """Columns that the pattern has."""
        return int(self.cross.shape[-1])

    @property
    def groups(self) -> int:
        """G."""
        return int(self.cross.shape[1])

    def gram(self, counts: FloatArray) -> FloatArray:
        """Return G (B, G, r, r) of counts (B, R)."""
        r = self.rows.shape[1]
        sums = np.asarray((self.outer.T @ counts.T).T)
        return sums.reshape(counts.shape[0], self.groups, r, r)

    def totals(self, counts: FloatArray) -> FloatArray:
        """Return the number of records (B, G) of each group."""
        member = self.row_group[:, None] == np.arange(self.groups)
        return np.asarray(counts @ member.astype(np.float64))


@dataclass(frozen=True, repr=False)
class Geometry:
    """The consequences of counts for a pattern.

    total (B, G) records, gram G (B, G, r, r) with lam (B, G, r) and vectors (B, G, r, r), zeros
    for axes without records, and df (B, G) of W."""

    total: FloatArray
    gram: FloatArray
    lam: FloatArray
    vectors: FloatArray
    df: FloatArray

    @classmethod
    def of(cls, target: PatternTarget, counts: FloatArray) -> "Geometry":
        """Return the geometry of counts (B, R)."""
        total, gram = target.totals(counts), target.gram(counts)
        lam, vectors = np.linalg.eigh(gram)
        lam = np.where(lam > NO_SHARE * np.maximum(lam[..., -1:], 1e-300), lam, 0.0)
        return cls(total, gram, lam, vectors, total - (lam > 0).sum(-1))

    def chosen(self, accept: BoolArray, other: "Geometry") -> "Geometry":
        """Return the other geometry for the blocks (B, G) that accept it."""
        return Geometry(
            np.where(accept, other.total, self.total),
            np.where(accept[..., None, None], other.gram, self.gram),
            np.where(accept[..., None], other.lam, self.lam),
            np.where(accept[..., None, None], other.vectors, self.vectors),
            np.where(accept, other.df, self.df),
        )

    def explained(self, cross: FloatArray) -> FloatArray:
        """Return T'G^+T (B, G, q, q)."""
        there = self.lam > 0
        inverse = np.where(there, 1.0 / np.where(there, self.lam, 1.0), 0.0)
        inner = self.vectors.swapaxes(-1, -2) @ cross
        return np.asarray((inner * inverse[..., None]).swapaxes(-1, -2) @ inner)


@dataclass(frozen=True, repr=False)
class Law:
    """T and W of a pattern given counts and theta, B chains and G groups.

    middle M and sigma: of theta; turn (B, G, q, q): eigenvectors of Sigma; mean and sd (B, G, r, q)
    of T given T~ in the axes of both; df (B, G); log_cross: log density (B, G) of T~; scatter: of
    B G problems one after another.
    """

    target: PatternTarget
    geometry: Geometry
    middle: FloatArray
    sigma: FloatArray
    turn: FloatArray
    mean: FloatArray
    sd: FloatArray
    df: FloatArray
    possible: BoolArray
    log_cross: FloatArray
    scatter: NormalScatter
    log_constant: FloatArray

    @classmethod
    def of(
        cls, target: PatternTarget, geometry: Geometry, middle: FloatArray, sigma: FloatArray
    ) -> "Law":
        """Return the law for M (B, G, r, q) and Sigma (B, G, q, q)."""
        lam, vectors = geometry.lam, geometry.vectors
        s, turn = np.linalg.eigh(sigma)
        signal = lam[..., None] * np.maximum(s, 1e-300)[..., None, :]
        noise = target.sigma**2
        observed = vectors.swapaxes(-1, -2) @ target.cross @ turn
        expected = lam[..., None] * (vectors.swapaxes(-1, -2) @ middle @ turn)
        gain, gap = signal / (signal + noise), observed - expected
        log_cross = np.log(signal + noise) + gap * gap / (signal + noise)
        possible = geometry.df > target.q - 1.0
        sound = np.where(possible, geometry.df, target.q + 1.0)
        scatter = NormalScatter.of(
            sound.reshape(-1), sigma.reshape(-1, target.q, target.q), target.squares_sd
        )
        return cls(
            target, geometry, middle, sigma, turn,
            mean=expected + gain * gap,
            sd=target.sigma * np.sqrt(gain),
            df=sound,
            possible=possible,
            log_cross=-0.5 * log_cross.sum((-1, -2)),
            scatter=scatter,
            log_constant=_log_constant(scatter, sound, target.q),
        )  # fmt: skip

    def with_counts(self, counts: FloatArray) -> "Law":
        """Return the law at other counts (B, R)."""
        return Law.of(self.target, Geometry.of(self.target, counts), self.middle, self.sigma)

    def cross_at(self, xi: FloatArray) -> FloatArray:
        """Return T (B, G, r, q)."""
        inner = self.geometry.vectors.swapaxes(-1, -2) @ xi @ self.turn
        moved = self.mean + self.sd * inner
        return np.asarray(self.geometry.vectors @ moved @ self.turn.swapaxes(-1, -2))

    def xi_of(self, cross: FloatArray, fresh: FloatArray) -> FloatArray:
        """Return xi of T; axes without records take ``fresh`` normals (B, G, r, q)."""
        inner = self.geometry.vectors.swapaxes(-1, -2) @ cross @ self.turn - self.mean
        there = self.sd > 0
        white = np.where(there, inner / np.where(there, self.sd, 1.0), fresh)
        return np.asarray(self.geometry.vectors @ white @ self.turn.swapaxes(-1, -2))

    def observed(self, cross: FloatArray) -> FloatArray:
        """Return Q~ - T'G^+T, one problem after another (B G, q, q)."""
        q = self.target.q
        return (self.target.squares - self.geometry.explained(cross)).reshape(-1, q, q)

    def scatter_at(self, observed: FloatArray, eta: FloatArray) -> FloatArray:
        """Return W (B G, q, q) for eta (B G, q(q+1)/2)."""
        return self.scatter.mean(observed) + self.scatter.noise(eta)

    def eta_of(
        self, observed: FloatArray, scatter: FloatArray, fresh: FloatArray
    ) -> FloatArray:
        """Return eta of W; directions in which W cannot vary take ``fresh`` normals (B G, half)."""
        row, column = np.tril_indices(self.target.q)
        sd = self.target.squares_sd[row, column]
        # In units of the noise the columns of the root stand at right angles.
        root = self.scatter.posterior_root / sd[:, None]
        gap = (scatter - self.scatter.mean(observed))[:, row, column] / sd
        share = (root * root).sum(-2)
        there = share > 1e-250
        white = (root.swapaxes(-1, -2) @ gap[..., None])[..., 0] / np.where(there, share, 1.0)
        return np.where(there, white, fresh)

    def log_scatter(self, observed: FloatArray, scatter: FloatArray) -> FloatArray:
        """Return log N(Q~ - T'G^+T) + log Wishart(W) - log N(W) (B, G), with df."""
        gap = (observed - self.scatter.expected)[:, None]
        white = self.scatter.whitened_noise(gap)[:, 0]
        ratio = log_wishart_over_normal(
            self.scatter.whitened(scatter[:, None]), self.df.reshape(-1)
        )[:, 0]
        result = (ratio - 0.5 * (white * white).sum(-1)).reshape(self.df.shape)
        return np.asarray(result + self.log_constant)

    def log_factor(self, xi: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the rest of the target (B, G), -inf where it is impossible, 0 where unused."""
        observed = self.observed(self.cross_at(xi))
        with np.errstate(all="ignore"):
            value = self.log_cross + self.log_scatter(observed, self.scatter_at(observed, eta))
        value = np.where(self.possible & ~np.isnan(value), value, -np.inf)
        return np.where(self.target.used, value, 0.0)


def _log_constant(scatter: NormalScatter, df: FloatArray, q: int) -> FloatArray:
    """Return what the densities of W leave out and depends on df (B, G)."""
    # Wishart over normal: |C| grows as df^(q(q+1)/2).
    result = -0.5 * df * q * np.log(2.0) - multigammaln(0.5 * df, q)
    result = result + 0.25 * q * (q + 1) * np.log(df)
    # The normal of Q~: -log|C + F|/2.
    log_det = np.linalg.slogdet(scatter.marginal_whitening)[1]
    return np.asarray(result + log_det.reshape(df.shape))


#: Half of the window that is looked at, in SDs and whole numbers: what lies outside weighs less
#: than rounding does.
WINDOW_SDS = 9.0
WINDOW_LEAST = 12


def tournament(players: int) -> list[tuple[IntArray, IntArray]]:
    """Return rounds of disjoint pairs in which all players meet once (the circle method)."""
    seats = list(range(players + players % 2))
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        own = [pair for pair in pairs if max(pair) < players]
        if own:
            sides = np.array(own, dtype=np.int64).T
            rounds.append((sides[0], sides[1]))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def exchanged(
    counts: IntArray,
    log_p: FloatArray,
    noisy: FloatArray,
    sd: float,
    pairs: tuple[IntArray, IntArray],
    uniforms: FloatArray,
) -> IntArray:
    """Return counts (B, C, D) with those of the pairs, P each, drawn anew.

    log_p and noisy (B, C, D), uniforms (B, C, P)."""
    first, second = pairs
    total = counts[..., first] + counts[..., second]
    log_odds = log_p[..., first] - log_p[..., second]
    # -(k - y)^2 / 2v - (s - k - y')^2 / 2v is -(k - centre)^2 / v up to a constant.
    centre = 0.5 * (noisy[..., first] + total - noisy[..., second])
    drawn = _drawn(total, log_odds, centre, sd, uniforms)
    result = counts.copy()
    result[..., first], result[..., second] = drawn, total - drawn
    return result


def _drawn(
    total: IntArray, log_odds: FloatArray, centre: FloatArray, sd: float, uniforms: FloatArray
) -> IntArray:
    """Draw k from 0 to s, p(k) ~ C(s, k) exp(k log_odds - ((k - c)/sd)^2)."""
    own = 2.0 / (sd * sd)
    middle = _mode(total, log_odds, centre, own)
    curvature = 1.0 / (middle + 1.0) + 1.0 / (total - middle + 1.0) + own
    half = np.ceil(WINDOW_SDS / np.sqrt(curvature)) + WINDOW_LEAST
    low = np.clip(np.floor(middle - half), 0.0, total)
    high = np.clip(np.ceil(middle + half), 0.0, total)
    k = low[..., None] + np.arange(int((high - low).max()) + 1)
    # log C(s, k) from one k to the next; beyond s nothing is possible.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log((total[..., None] - k[..., 1:] + 1.0) / k[..., 1:])
    log_mass = np.zeros(k.shape)
    np.cumsum(ratio + log_odds[..., None], axis=-1, out=log_mass[..., 1:])
    log_mass -= ((k - centre[..., None]) / sd) ** 2
    log_mass = np.where(k <= high[..., None], log_mass, -np.inf)
    log_mass -= log_mass.max(axis=-1, keepdims=True)
    mass = np.cumsum(np.exp(log_mass), axis=-1)
    position = (mass < uniforms[..., None] * mass[..., -1:]).sum(axis=-1)
    return np.asarray(low + position, dtype=np.int64)


def _mode(total: IntArray, log_odds: FloatArray, centre: FloatArray, own: float) -> FloatArray:
    """Return about the largest term, by halving: logs of terms are concave.

    Binomial and noise may be far apart; the largest term is then where neither a normal about
    the one nor about both would look."""
    low, high = np.zeros(total.shape), total.astype(np.float64)
    for _ in range(int(total.max(initial=0)).bit_length()):
        k = 0.5 * (low + high)
        rises = np.log((total - k + 0.5) / (k + 0.5)) + log_odds > own * (k - centre)
        low, high = np.where(rises, k, low), np.where(rises, high, k)
    return np.asarray(0.5 * (low + high))


def start_counts(noisy: FloatArray, sizes: IntArray) -> IntArray:
    """Return whole numbers (B, C, D) near noisy ones that add up to the sizes (C,).

    Shares of what is above zero, rounded by largest remainders."""
    positive = np.maximum(noisy, 0.0) + 0.5
    ideal = positive / positive.sum(axis=-1, keepdims=True) * sizes[:, None]
    result = np.floor(ideal).astype(np.int64)
    left = sizes - result.sum(axis=-1)
    order = np.argsort(np.argsort(-(ideal - result), axis=-1, kind="stable"), axis=-1)
    return np.asarray(result + (order < left[..., None]), dtype=np.int64)
