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
"""

from dataclasses import dataclass, fields, replace
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
    x~ = a link; cross (B, G, r, q), squares (B, G, q, q); used (B, G): whether the group's moments
    are looked at, told (B, G): and its squares too; sigma, squares_sd: SDs of the noise, of squares
    above the diagonal.
    """

    row: IntArray
    row_group: IntArray
    rows: FloatArray
    outer: sparse.csr_array
    link: FloatArray
    cross: FloatArray
    squares: FloatArray
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

    total (B, G) records; lam (B, G, r) and vectors (B, G, r, r) of the gram G, zeros for axes
    without records, inverse (B, G, r) of lam; free (B, G): degrees of freedom of W; possible (B,
    G): whether they give it a density, df (B, G) and log_df (B, G): those and the density's
    constant if so; cross (., G, r, q): T~ in the axes.
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
        lam, vectors = np.linalg.eigh(target.gram(counts))
        there = lam > NO_SHARE * np.maximum(lam[..., -1:], 1e-300)
        free, q = total - there.sum(-1), target.q
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
            cross=vectors.swapaxes(-1, -2) @ target.cross,
        )

    @property
    def gram(self) -> FloatArray:
        """G (B, G, r, r)."""
        scaled = self.vectors * self.lam[..., None, :]
        return np.asarray(scaled @ self.vectors.swapaxes(-1, -2))

    def chosen(self, accept: BoolArray, other: "Geometry") -> "Geometry":
        """Return the other geometry for the blocks (B, G) that accept it."""
        return Geometry(**merged(accept, other, self))

    def explained(self, cross: FloatArray) -> FloatArray:
        """Return T'G^+T (B, G, q, q)."""
        inner = self.vectors.swapaxes(-1, -2) @ cross
        return np.asarray((inner * self.inverse[..., None]).swapaxes(-1, -2) @ inner)


def merged(accept: BoolArray, new: Any, old: Any, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the arrays of one object for the blocks (B, G) that accept, else of the other."""
    names = [field.name for field in fields(old) if field.name not in but]
    result = {}
    for name in names:
        values = getattr(new, name), getattr(old, name)
        where = accept.reshape(*accept.shape, *(1,) * (values[0].ndim - 2))
        result[name] = np.where(where, *values)
    return result


@dataclass(frozen=True, repr=False)
class Law:
    """T and W of a pattern given counts and theta, B chains and G groups, in the axes of both.

    middle M and sigma: of theta; turn (B, G, q, q) and size (B, G, q): eigenvectors and values of
    Sigma; mean and sd (B, G, r, q) of T given T~; log_cross: log density (B, G) of T~; squares
    (B, G, q, q): Q~; expected: mean of W; gain, root: of W given Q~, and spread its variance under
    both, all (B, G, q, q).
    """

    target: PatternTarget
    geometry: Geometry
    middle: FloatArray
    sigma: FloatArray
    turn: FloatArray
    size: FloatArray
    mean: FloatArray
    sd: FloatArray
    log_cross: FloatArray
    squares: FloatArray
    expected: FloatArray
    gain: FloatArray
    root: FloatArray
    spread: FloatArray
    log_constant: FloatArray

    @classmethod
    def of(
        cls, target: PatternTarget, geometry: Geometry, middle: FloatArray, sigma: FloatArray
    ) -> "Law":
        """Return the law for M (B, G, r, q) and Sigma (B, G, q, q)."""
        size, turn = symmetric_axes(sigma)
        scaled = geometry.df[..., None] * size
        own = scaled[..., :, None] * size[..., None, :]
        spread = own + target.squares_sd**2
        share, logs = own / spread, np.log(spread)
        # Entries above the diagonal once, those on it once: half of all, and half of these again.
        log_spread = logs.sum((-1, -2)) + np.einsum("...ii->...", logs)
        mean, sd, log_cross = _cross(target, geometry, middle, turn, size)
        return cls(
            target, geometry, middle, sigma, turn, size, mean, sd, log_cross,
            squares=turned(target.squares, turn),
            expected=scaled[..., None] * np.eye(target.q),
            gain=share,
            root=target.squares_sd * np.sqrt(share),
            spread=spread,
            log_constant=geometry.log_df - 0.25 * log_spread,
        )  # fmt: skip

    def with_means(self, middle: FloatArray) -> "Law":
        """Return the law for another M (B, G, r, q)."""
        mean, sd, log_cross = _cross(self.target, self.geometry, middle, self.turn, self.size)
        return replace(self, middle=middle, mean=mean, sd=sd, log_cross=log_cross)

    def chosen(self, accept: BoolArray, other: "Law") -> "Law":
        """Return the other law for the blocks (B, G) that accept it."""
        same = other.geometry is self.geometry
        geometry = self.geometry if same else self.geometry.chosen(accept, other.geometry)
        arrays = merged(accept, other, self, but=("target", "geometry"))
        return Law(target=self.target, geometry=geometry, **arrays)

    def with_counts(self, counts: FloatArray) -> "Law":
        """Return the law at other counts (B, R)."""
        return Law.of(self.target, Geometry.of(self.target, counts), self.middle, self.sigma)

    # --- what is held, in the axes and out of them -----------------------------------------------

    def into(self, xi: FloatArray, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return xi (B, G, r, q) and eta (B, G, q, q) in the axes."""
        return along(across(self.geometry.vectors, xi), self.turn), turned(eta, self.turn)

    def out_of(self, cross: FloatArray, scatter: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return matrices like T and W, given in the axes, as they are."""
        back = self.turn.swapaxes(-1, -2)
        vectors = self.geometry.vectors.swapaxes(-1, -2)
        return along(across(vectors, cross), back), turned(scatter, back)

    def cross_at(self, xi: FloatArray) -> FloatArray:
        """Return T in the axes, of xi in them."""
        return np.asarray(self.mean + self.sd * xi)

    def xi_of(self, cross: FloatArray, fresh: FloatArray) -> FloatArray:
        """Return xi of T; axes without records take ``fresh`` normals. All in the axes."""
        there = self.sd > 0
        return np.where(there, (cross - self.mean) / np.where(there, self.sd, 1.0), fresh)

    def gap(self, cross: FloatArray) -> FloatArray:
        """Return Q~ - T'G^+T - df Sigma (B, G, q, q) of T. All in the axes."""
        scaled = cross * self.geometry.inverse[..., None]
        explained = np.einsum("...ri,...rj->...ij", scaled, cross)
        return np.asarray(self.squares - explained - self.expected)

    def scatter_at(self, gap: FloatArray, eta: FloatArray) -> FloatArray:
        """Return W (B, G, q, q) for eta. All in the axes."""
        return np.asarray(self.expected + self.gain * gap + self.root * eta)

    def eta_of(self, gap: FloatArray, scatter: FloatArray, fresh: FloatArray) -> FloatArray:
        """Return eta of W; where W cannot vary, ``fresh`` ones (B, G, q, q). All in the axes."""
        there = self.root > 1e-125 * self.target.squares_sd
        rest = scatter - self.expected - self.gain * gap
        return np.where(there, rest / np.where(there, self.root, 1.0), fresh)

    def log_scatter(self, gap: FloatArray, scatter: FloatArray) -> FloatArray:
        """Return log N(Q~ - T'G^+T) + log Wishart(W) - log N(W) (B, G), with df."""
        df, q = self.geometry.df, self.target.q
        white = scatter / np.sqrt(self.size[..., :, None] * self.size[..., None, :])
        trace = np.einsum("...ii->...", white)
        off = white - df[..., None, None] * np.eye(q)
        ratio = 0.5 * (df - q - 1.0) * log_det(white) - 0.5 * trace
        ratio = ratio + 0.25 * (off * off).sum((-1, -2)) / df
        told = (gap * gap / self.spread).sum((-1, -2))
        return np.asarray(ratio - 0.25 * told + self.log_constant)

    def log_factor(self, xi: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the rest of the target (B, G), -inf where it is impossible, 0 where unused.

        xi and eta in the axes."""
        target = self.target
        with np.errstate(all="ignore"):
            gap = self.gap(self.cross_at(xi))
            value = self.log_scatter(gap, self.scatter_at(gap, eta))
        value = np.where(self.geometry.possible & ~np.isnan(value), value, -np.inf)
        return np.where(target.used, self.log_cross + np.where(target.told, value, 0.0), 0.0)


def _cross(
    target: PatternTarget,
    geometry: Geometry,
    middle: FloatArray,
    turn: FloatArray,
    size: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean and SD (B, G, r, q) of T given T~ in the axes, and the log density of T~."""
    lam = geometry.lam[..., None]
    signal = lam * size[..., None, :]
    both = signal + target.sigma**2
    expected = lam * along(across(geometry.vectors, middle), turn)
    gain, gap = signal / both, along(geometry.cross, turn) - expected
    log_cross = (np.log(both) + gap * gap / both).sum((-1, -2))
    return expected + gain * gap, target.sigma * np.sqrt(gain), -0.5 * log_cross


def across(vectors: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return V'X (..., r, q) for vectors V (..., r, r)."""
    if vectors.shape[-1] == 1:
        return vectors * matrix
    return np.asarray(vectors.swapaxes(-1, -2) @ matrix)


def along(matrix: FloatArray, turn: FloatArray) -> FloatArray:
    """Return X R (..., r, q) for rotations R (..., q, q); by hand where these are small."""
    if turn.shape[-1] != 2:
        return np.asarray(matrix @ turn)
    cos, sin = turn[..., 0, 0][..., None], turn[..., 1, 0][..., None]
    first, second = matrix[..., 0], matrix[..., 1]
    return np.stack([first * cos + second * sin, second * cos - first * sin], axis=-1)


def turned(matrix: FloatArray, turn: FloatArray) -> FloatArray:
    """Return R'SR (..., q, q) of symmetric S, for rotations R; by hand where these are small."""
    if turn.shape[-1] != 2:
        return np.asarray(turn.swapaxes(-1, -2) @ matrix @ turn)
    cos, sin = turn[..., 0, 0], turn[..., 1, 0]
    twice_cos, twice_sin = cos * cos - sin * sin, 2.0 * cos * sin
    middle = 0.5 * (matrix[..., 0, 0] + matrix[..., 1, 1])
    half, off = 0.5 * (matrix[..., 0, 0] - matrix[..., 1, 1]), matrix[..., 0, 1]
    result = np.empty(np.broadcast_shapes(matrix.shape, turn.shape))
    moved = half * twice_cos + off * twice_sin
    result[..., 0, 0], result[..., 1, 1] = middle + moved, middle - moved
    result[..., 0, 1] = result[..., 1, 0] = off * twice_cos - half * twice_sin
    return result


def symmetric_axes(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (..., q) and eigenvectors (..., q, q) of positive definite matrices.

    In closed form for q = 2, where LAPACK takes far longer."""
    q = matrix.shape[-1]
    if q > 2:
        values, vectors = np.linalg.eigh(matrix)
        return np.maximum(values, 1e-300), vectors
    if q < 2:
        return matrix[..., 0], np.ones_like(matrix)
    a, b, d = matrix[..., 0, 0], matrix[..., 0, 1], matrix[..., 1, 1]
    angle = 0.5 * np.arctan2(2.0 * b, a - d)
    cos, sin = np.cos(angle), np.sin(angle)
    largest = 0.5 * (a + d) + np.hypot(0.5 * (a - d), b)
    values, vectors = np.empty((*a.shape, 2)), np.empty((*a.shape, 2, 2))
    values[..., 0] = largest
    values[..., 1] = np.maximum(a * d - b * b, 0.0) / largest
    vectors[..., 0, 0] = vectors[..., 1, 1] = cos
    vectors[..., 1, 0], vectors[..., 0, 1] = sin, -sin
    return np.maximum(values, 1e-300), vectors
