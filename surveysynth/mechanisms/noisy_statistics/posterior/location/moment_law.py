"""The confidential moments of one pattern as unknowns: T and W of each group, given counts.

In units of u, with the rows a of A by group, n of them in each row and G = sum n a a':

    T | n, theta ~ N(G M, G (x) Sigma),  W | n, theta ~ Wishart(n - rank G, Sigma)
    T~ = T + E,  Q~ = W + T'G^+T + F

T and W are held as standard normals: xi, from which T follows given n, theta and T~, and eta, from
which W follows given T and Q~ by the normal approximation of the Wishart times the noise. What is
left of the target is

    N(T~; G M, G (x) Sigma + sigma^2 I) N(Q~ - T'G^+T; df Sigma, C + F)
        Wishart(W; df, Sigma) / N(W; df Sigma, C)

which changes little with xi, eta, or n. Axes without a record carry noise alone: their xi is
nothing but a random number.

The noise F has twice the variance on the diagonal, so that no rotation changes its law; nor that of
eta, a symmetric matrix with the same property. In the axes of Sigma, with eigenvalues s, entries of
W are independent under C too, with variances df s_i s_j (twice that on the diagonal): all of the
above goes entry by entry there, however small C is beside F.

Arrays of laws have chains B and groups G as their last axes: matrices are small and many, and NumPy
is fastest along whole arrays of one entry.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import multigammaln

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.wishart import log_det

#: An axis of G that holds a smaller share of the largest holds no record.
NO_SHARE = 1e-9


@dataclass(frozen=True, repr=False)
class PatternTarget:
    """Noisy moments of a pattern with q columns, of B chains and G groups, and its public rows.

    row (R,): of the whole table; row_group (R,); rows A (R, r) in the axes of their group, zeros
    where a group has fewer; outer (R, G r r) sparse: their products aa' by group; link (G, r, P):
    x~ = a link; cross (B, G, r, q), squares (B, G, q, q); off (B, G, r, q): taken from M by centres
    of groups; used (B, G): whether moments are looked at, told (B, G): squares too; sigma,
    squares_sd: SDs of the noise, of squares above the diagonal.
    """

    row: IntArray
    row_group: IntArray
    rows: FloatArray
    outer: sparse.csr_array
    link: FloatArray
    cross: FloatArray
    squares: FloatArray
    off: FloatArray
    used: BoolArray
    told: BoolArray
    sigma: float
    squares_sd: float

    @property
    def q(self) -> int:
        """Columns that the pattern has."""
        return int(self.cross.shape[-1])

    @property
    def groups(self) -> int:
        """G."""
        return int(self.cross.shape[1])

    @cached_property
    def last_squares(self) -> FloatArray:
        """Q~ (q, q, B, G)."""
        return last(self.squares)

    @cached_property
    def last_cross(self) -> FloatArray:
        """T~ (r, q, B, G)."""
        return last(self.cross)

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
    """The consequences of counts for a pattern; B is 1 where counts are public.

    total (B, G) records; lam (r, B, G) and vectors (r, r, B, G) of the gram G, zeros for axes
    without records, inverse (r, B, G) of lam; free (B, G): degrees of freedom of W; possible (B,
    G): whether they give it a density, df (B, G) and log_df (B, G): those and the density's
    constant if so; cross (r, q, ., G): T~ in the axes.
    """

    total: FloatArray
    lam: FloatArray
    vectors: FloatArray
    inverse: FloatArray
    free: FloatArray
    df: FloatArray
    possible: BoolArray
    log_df: FloatArray
    cross: FloatArray

    @classmethod
    def of(cls, target: PatternTarget, counts: FloatArray) -> "Geometry":
        """Return the geometry of counts (B, R)."""
        total = target.totals(counts)
        values, axes = _axes_of_gram(target.gram(counts))
        lam, vectors = last(values), last(axes)
        there = lam > NO_SHARE * np.maximum(lam[-1], 1e-300)
        free, q = total - there.sum(0), target.q
        possible = free > q - 1.0
        df = np.where(possible, free, q + 1.0)
        log_df = -0.5 * df * q * np.log(2.0) - multigammaln(0.5 * df, q)
        return cls(
            total=total,
            lam=np.where(there, lam, 0.0),
            vectors=vectors,
            inverse=np.where(there, 1.0 / np.where(there, lam, 1.0), 0.0),
            free=free,
            df=df,
            possible=possible,
            # Wishart over normal: |C| grows as df^(q(q+1)/2).
            log_df=log_df + 0.25 * q * (q + 1) * np.log(df),
            cross=across(vectors, target.last_cross),
        )

    def chosen(self, accept: BoolArray, other: "Geometry") -> "Geometry":
        """Return the other geometry for the blocks (B, G) that accept it."""
        return Geometry(**merged(accept, other, self))

    def explained(self, cross: FloatArray) -> FloatArray:
        """Return T'G^+T (B, G, q, q) of T (B, G, r, q)."""
        return first(squared(across(self.vectors, last(cross)), self.inverse))


def _axes_of_gram(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues and vectors of grams (B, G, r, r)."""
    if gram.shape[-1] == 1:
        return gram[..., 0], np.ones_like(gram)
    values, vectors = np.linalg.eigh(gram)
    return values, vectors


def merged(accept: BoolArray, new: Any, old: Any, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the arrays of one object for the blocks (B, G) that accept, else of the other."""
    names = [field.name for field in fields(old) if field.name not in but]
    return {name: np.where(accept, getattr(new, name), getattr(old, name)) for name in names}


@dataclass(frozen=True, repr=False)
class Law:
    """T and W of a pattern given counts and theta, B chains and G groups, in the axes of both.

    middle (r, q, B, G): M of theta, and expected: the mean of T in the axes of G; sigma, turn
    (q, q, B, G) and size (q, B, G): Sigma, its eigenvectors and values; cross_mean and cross_sd
    (r, q, B, G) of T given T~; log_cross: log density (B, G) of T~; squares (q, q, B, G): Q~;
    mean (q, B, G): diagonal of the mean of W; gain, root: of W given Q~, and spread its variance
    under both, all (q, q, B, G).
    """

    target: PatternTarget
    geometry: Geometry
    middle: FloatArray
    expected: FloatArray
    sigma: FloatArray
    turn: FloatArray
    size: FloatArray
    cross_mean: FloatArray
    cross_sd: FloatArray
    log_cross: FloatArray
    squares: FloatArray
    mean: FloatArray
    gain: FloatArray
    root: FloatArray
    spread: FloatArray
    log_constant: FloatArray

    @classmethod
    def of(
        cls, target: PatternTarget, geometry: Geometry, middle: FloatArray, sigma: FloatArray
    ) -> "Law":
        """Return the law for M (r, q, B, G) and Sigma (q, q, B, G)."""
        return cls._of(target, geometry, middle, _expected(geometry, middle), sigma)

    @classmethod
    def _of(
        cls,
        target: PatternTarget,
        geometry: Geometry,
        middle: FloatArray,
        expected: FloatArray,
        sigma: FloatArray,
    ) -> "Law":
        size, turn = symmetric_axes(sigma)
        mean = geometry.df * size
        own = mean[:, None] * size
        spread = own + target.squares_sd**2
        share, logs = own / spread, np.log(spread)
        # Entries above the diagonal once, those on it once: half of all, and half of these again.
        log_spread = logs.sum((0, 1)) + np.einsum("ii...->...", logs)
        return cls(
            target, geometry, middle, expected, sigma, turn, size,
            *_cross(target, geometry, expected, turn, size),
            squares=turned(target.last_squares, turn),
            mean=mean,
            gain=share,
            root=target.squares_sd * np.sqrt(share),
            spread=spread,
            log_constant=geometry.log_df - 0.25 * log_spread,
        )  # fmt: skip

    def with_means(self, middle: FloatArray) -> "Law":
        """Return the law for another M (r, q, B, G)."""
        expected = _expected(self.geometry, middle)
        mean, sd, log_cross = _cross(self.target, self.geometry, expected, self.turn, self.size)
        return replace(
            self, middle=middle, expected=expected, cross_mean=mean, cross_sd=sd,
            log_cross=log_cross,
        )  # fmt: skip

    def with_covariance(self, sigma: FloatArray) -> "Law":
        """Return the law for another Sigma (q, q, B, G)."""
        return self._of(self.target, self.geometry, self.middle, self.expected, sigma)

    def with_counts(self, counts: FloatArray) -> "Law":
        """Return the law at other counts (B, R)."""
        return self.of(self.target, Geometry.of(self.target, counts), self.middle, self.sigma)

    def chosen(self, accept: BoolArray, other: "Law") -> "Law":
        """Return the other law for the blocks (B, G) that accept it."""
        same = other.geometry is self.geometry
        geometry = self.geometry if same else self.geometry.chosen(accept, other.geometry)
        arrays = merged(accept, other, self, but=("target", "geometry"))
        return Law(target=self.target, geometry=geometry, **arrays)

    # --- what is held: xi in the axes of G, eta as it is ------------------------------------------

    def cross_at(self, xi: FloatArray) -> FloatArray:
        """Return T in the axes of both, of xi (r, q, B, G)."""
        return np.asarray(self.cross_mean + self.cross_sd * along(xi, self.turn))

    def xi_of(self, cross: FloatArray, fresh: FloatArray) -> FloatArray:
        """Return xi of T (r, q, B, G) as it is; axes without records take ``fresh`` normals."""
        there = self.cross_sd > 0
        inner = along(across(self.geometry.vectors, cross), self.turn)
        xi = np.where(there, (inner - self.cross_mean) / np.where(there, self.cross_sd, 1.0), fresh)
        return along(xi, back(self.turn))

    def gap(self, cross: FloatArray) -> FloatArray:
        """Return Q~ - T'G^+T - df Sigma (q, q, B, G) of T. All in the axes."""
        result = self.squares - squared(cross, self.geometry.inverse)
        for j in range(self.target.q):
            result[j, j] -= self.mean[j]
        return result

    def scatter_at(self, gap: FloatArray, eta: FloatArray) -> FloatArray:
        """Return W (q, q, B, G) in the axes for eta, which is not in them."""
        result = self.gain * gap + self.root * turned(eta, self.turn)
        for j in range(self.target.q):
            result[j, j] += self.mean[j]
        return result

    def eta_of(self, gap: FloatArray, scatter: FloatArray, fresh: FloatArray) -> FloatArray:
        """Return eta of W as it is; where W cannot vary, ``fresh`` ones (q, q, B, G)."""
        there = self.root > 1e-125 * self.target.squares_sd
        rest = turned(scatter, self.turn) - self.gain * gap
        for j in range(self.target.q):
            rest[j, j] -= self.mean[j]
        eta = np.where(there, rest / np.where(there, self.root, 1.0), fresh)
        return turned(eta, back(self.turn))

    def moments(self, xi: FloatArray, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return T (r, q, B, G) and W (q, q, B, G) as they are."""
        inner = self.cross_at(xi)
        scatter = self.scatter_at(self.gap(inner), eta)
        cross = across(back(self.geometry.vectors), along(inner, back(self.turn)))
        return cross, turned(scatter, back(self.turn))

    def log_scatter(self, gap: FloatArray, eta: FloatArray) -> FloatArray:
        """Return log N(Q~ - T'G^+T) + log Wishart(W) - log N(W) (B, G), with df."""
        df, q = self.geometry.df, self.target.q
        scale = 1.0 / np.sqrt(self.size)
        white = self.scatter_at(gap, eta) * (scale[:, None] * scale)
        size = log_det(np.moveaxis(white, (0, 1), (-2, -1)))
        # Few degrees of freedom have a density that grows toward singular W; beyond is none.
        ratio = np.where(np.isneginf(size), -np.inf, 0.5 * (df - q - 1.0) * size)
        ratio = ratio - 0.5 * np.einsum("ii...->...", white)
        # The squares of both normals nearly cancel where noise is small: their difference.
        share, inner = self.target.squares_sd**2 / self.spread, turned(eta, self.turn)
        both = gap * (2.0 * self.root * inner - share * gap) / self.spread + share * inner * inner
        return np.asarray(ratio + 0.25 * both.sum((0, 1)) + self.log_constant)

    def log_factor(self, xi: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the rest of the target (B, G), -inf where it is impossible, 0 where unused."""
        target = self.target
        with np.errstate(all="ignore"):
            gap = self.gap(self.cross_at(xi))
            value = self.log_scatter(gap, eta)
        value = np.where(self.geometry.possible & ~np.isnan(value), value, -np.inf)
        return np.where(target.used, self.log_cross + np.where(target.told, value, 0.0), 0.0)


def _expected(geometry: Geometry, middle: FloatArray) -> FloatArray:
    return np.asarray(geometry.lam[:, None] * across(geometry.vectors, middle))


def _cross(
    target: PatternTarget,
    geometry: Geometry,
    expected: FloatArray,
    turn: FloatArray,
    size: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean and SD (r, q, B, G) of T given T~ in the axes, and the log density of T~."""
    signal = geometry.lam[:, None] * size
    both = signal + target.sigma**2
    gain, gap = signal / both, along(geometry.cross - expected, turn)
    log_cross = np.log(both).sum((0, 1)) + np.einsum("rj...,rj...->...", gap / both, gap)
    mean = along(expected, turn) + gain * gap
    return mean, target.sigma * np.sqrt(gain), -0.5 * log_cross


def last(values: FloatArray) -> FloatArray:
    """Return (..., B, G) of (B, G, ...)."""
    return np.ascontiguousarray(np.moveaxis(values, (0, 1), (-2, -1)))


def first(values: FloatArray) -> FloatArray:
    """Return (B, G, ...) of (..., B, G)."""
    return np.ascontiguousarray(np.moveaxis(values, (-2, -1), (0, 1)))


def back(axes: FloatArray) -> FloatArray:
    """Return the inverse (r, r, B, G) of rotations."""
    return np.swapaxes(axes, 0, 1)


def across(vectors: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return V'X (r, q, B, G) for rotations V (r, r, B, G)."""
    if vectors.shape[0] == 1:
        return vectors * matrix
    return np.asarray(np.einsum("ij...,iq...->jq...", vectors, matrix))


def along(matrix: FloatArray, turn: FloatArray) -> FloatArray:
    """Return X R (r, q, B, G) for rotations R (q, q, B, G)."""
    return np.asarray(np.einsum("ri...,ij...->rj...", matrix, turn))


def turned(matrix: FloatArray, turn: FloatArray) -> FloatArray:
    """Return R'SR (q, q, B, G) of symmetric S, for rotations R."""
    return along(along(matrix, turn).swapaxes(0, 1), turn)


def squared(cross: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return T'G^+T (q, q, B, G) of T (r, q, B, G) in the axes of G."""
    return np.asarray(np.einsum("ri...,rj...->ij...", cross * inverse[:, None], cross))


def symmetric_axes(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (q, B, G) and vectors (q, q, B, G) of positive definite matrices.

    In closed form for q = 2, where LAPACK takes far longer."""
    q = matrix.shape[0]
    if q > 2:
        values, vectors = np.linalg.eigh(first(matrix))
        return np.maximum(last(values), 1e-300), last(vectors)
    if q < 2:
        return matrix[0], np.ones_like(matrix)
    a, b, d = matrix[0, 0], matrix[0, 1], matrix[1, 1]
    half = 0.5 * (a - d)
    length = np.hypot(half, b)
    # Cosine and sine of half the angle of (half, b), whichever of them is safe to divide by.
    share = np.divide(half, length, out=np.ones_like(half), where=length > 0)
    larger = np.sqrt(0.5 + 0.5 * np.abs(share))
    smaller = 0.5 * np.divide(b, length * larger, out=np.zeros_like(b), where=length > 0)
    wide = share >= 0
    cos = np.where(wide, larger, np.abs(smaller))
    sin = np.where(wide, smaller, np.copysign(larger, smaller))
    largest = 0.5 * (a + d) + length
    values, vectors = np.empty((2, *a.shape)), np.empty((2, 2, *a.shape))
    values[0], values[1] = largest, np.maximum(a * d - b * b, 0.0) / largest
    vectors[0, 0] = vectors[1, 1] = cos
    vectors[1, 0], vectors[0, 1] = sin, -sin
    return np.maximum(values, 1e-300), vectors
