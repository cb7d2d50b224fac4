"""Public constants of the mechanism: declared scales, the integer grid, and the shape of the noise.

Nothing here sees a confidential number. Records enter as u = (z - center)/spread, clipped to a ball
and rounded to a grid; their sums enter as A'U, A one row per record, |row| <= 1, so that the same
noise on every entry is enough. The choice of A determines how the noise is spread over cells and
effects.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import linalg

from surveysynth._support.numeric import chi_square_quantile
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError

#: The grid of u has a step of 2^-20 of the radius, about: of 2^20 to 2^21 steps.
GRID_BITS = 20
#: Rows of A are whole numbers of 2^-30.
ROW_BITS = 30
#: Share of the probability of a normal record that the ball holds by default.
INSIDE = 0.995
#: Coordinates of u are cut here before anything is squared: far outside any ball.
HUGE = 1e100
#: The largest leverage may pass its mean by this share before the design counts as optimal.
TOLERANCE = 1e-3
MOST_ITERATIONS = 10_000
#: Singular values below this share of the largest, columns scaled alike, are zeros.
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Clipping:
    """Declared centers and spreads (q,) of z, and the radius R of the ball that u is clipped to.

    The radius is made a whole number of grid steps, rounded down. Without one: the square root of
    the chi-square quantile .995 with q degrees of freedom.

    Raises ``InputError`` unless centers are finite, spreads and the radius finite and above zero.
    """

    centre: FloatArray
    spread: FloatArray
    radius: float = 0.0

    def __post_init__(self) -> None:
        q = int(self.centre.size)
        if self.centre.shape != (q,) or self.spread.shape != (q,) or not q:
            raise InputError(
                "Each column of z needs one center and one spread, but they came with shapes "
                f"{self.centre.shape} and {self.spread.shape}."
            )
        radius = self.radius if self.radius != 0.0 else inside(q)
        sound = np.isfinite(self.centre).all() and np.isfinite(self.spread).all()
        if not (sound and (self.spread > 0).all() and 1e-6 < radius < 1e6):
            raise InputError(
                "Centers must be finite, spreads finite and above zero and the radius between "
                f"1e-6 and 1e6 spreads, but got centers {self.centre.tolist()}, spreads "
                f"{self.spread.tolist()} and radius {radius}."
            )
        step = 2.0 ** (math.floor(math.log2(radius)) - GRID_BITS)
        object.__setattr__(self, "radius", math.floor(radius / step) * step)

    @property
    def q(self) -> int:
        """Columns of z."""
        return int(self.centre.size)

    @property
    def step(self) -> float:
        """Step of the grid in u, a power of two."""
        return float(2.0 ** (math.floor(math.log2(self.radius)) - GRID_BITS))

    @property
    def steps(self) -> int:
        """The radius in steps, exactly."""
        return int(self.radius / self.step)

    def on_grid(self, z: FloatArray) -> IntArray:
        """Return u in steps (n, q), whole numbers inside the ball, for any finite z (n, q).

        Shrunk to q steps inside the ball and then rounded to the nearest point of the grid, which
        changes u by less than sqrt(q)/2 steps: no record ends outside, whatever it was.
        """
        with np.errstate(over="ignore"):
            u = (z - self.centre) / self.spread
        scaled = np.clip(u, -HUGE, HUGE) / self.step
        norm = np.sqrt((scaled * scaled).sum(axis=-1, keepdims=True))
        inside = float(self.steps - self.q)
        return np.asarray(np.rint(scaled * (inside / np.maximum(norm, inside))).astype(np.int64))


def inside(columns: int) -> float:
    """Return the radius of the ball that holds the share ``INSIDE`` of normal records."""
    return math.sqrt(chi_square_quantile(INSIDE, columns))


@dataclass(frozen=True)
class NoiseDesign:
    """The public matrix A of the released sums A'U, by row of the table.

    cells (G, K) distinct rows; basis (K, r): the row of a record in cell c is x_c basis, in whole
    numbers of 2^-30 (``rows``). No row is longer than 1: checked in whole numbers.
    """

    clipping: Clipping
    cells: FloatArray
    basis: FloatArray
    rows: IntArray = field(init=False)

    def __post_init__(self) -> None:
        products = np.zeros((self.cells.shape[0], self.basis.shape[1]))
        for column, row in zip(self.cells.T, self.basis, strict=True):
            used = np.flatnonzero(column)
            products[used] += column[used, None] * row  # no BLAS: equal digits on every machine
        # Far longer rows first: their squares would pass the whole numbers that settle it below.
        if float((products * products).sum(axis=1).max(initial=0.0)) > 1.5:
            raise ValueError("rows of a noise design are no longer than 1")
        rows = np.trunc(products * 2.0**ROW_BITS).astype(np.int64)
        if ((rows * rows).sum(axis=1) > 4**ROW_BITS).any():
            raise ValueError("rows of a noise design are no longer than 1")
        object.__setattr__(self, "rows", rows)

    @classmethod
    def optimal(cls, cells: FloatArray, clipping: Clipping) -> "NoiseDesign":
        """Return the D-optimal design for the cells."""
        return cls(clipping, cells, optimal_basis(cells))

    @property
    def exact_rows(self) -> FloatArray:
        """A by cell (G, rank): exactly what the sums are made with."""
        return np.asarray(self.rows * 2.0**-ROW_BITS, dtype=np.float64)


def optimal_basis(cells: FloatArray) -> FloatArray:
    """Return the matrix (K, r) with A = cells basis of a D-optimal design, r the cells' rank.

    Noise with covariance sigma^2 M on X'U is noise sigma^2 I on A'U = basis' X'U with
    M^-1 = basis basis'. Among all M with x' M^-1 x <= 1 for every row of the cells (G, K) this has
    the smallest determinant, to about ``TOLERANCE``, and the inequality holds for certain.
    """
    size = np.sqrt((cells * cells).sum(axis=0))
    units = np.where(size > 0, size, 1.0)
    left, values, right = np.linalg.svd(cells / units, full_matrices=False)
    used = values > RANK_TOLERANCE * values.max(initial=0.0)
    if not used.any():
        raise InputError("The design matrix has nothing but zeros; an intercept is needed.")
    # A column is orthonormal: leverages under M_p = sum_c p_c x_c x_c' are squared lengths in it.
    rows, to_rows = left[:, used], (right[used] / values[used, None]).T / units[:, None]
    root = _optimal_root(rows)
    longest = np.sqrt((linalg.solve_triangular(root, rows.T, lower=True) ** 2).sum(axis=0).max())
    whitening = linalg.solve_triangular(root, np.eye(root.shape[0]), lower=True).T
    return np.asarray(to_rows @ whitening / (longest * (1.0 + 1e-9)))


def _optimal_root(rows: FloatArray) -> FloatArray:
    """Return the Cholesky factor (r, r) of sum_c p_c x_c x_c' with D-optimal p.

    After Kiefer & Wolfowitz (1960).

    The multiplicative algorithm p_c <- p_c h_c / r, h_c the leverage. Rows that cannot belong to
    the optimum leave it on the way (Harman & Pronzato 2007).
    """
    rank = rows.shape[1]
    p = np.full(rows.shape[0], 1.0 / rows.shape[0])
    root = np.eye(rank)
    for _ in range(MOST_ITERATIONS):
        root = np.linalg.cholesky((rows.T * p) @ rows)
        white = linalg.solve_triangular(root, rows.T, lower=True)
        leverage = (white * white).sum(axis=0) / rank
        excess = float(leverage.max()) - 1.0
        if excess <= TOLERANCE:
            break
        kept = _possible(leverage, excess, rank)
        rows, p = rows[kept], (p * leverage)[kept]
        p = p / p.sum()
    return np.asarray(root, dtype=np.float64)


def _possible(leverage: FloatArray, excess: float, rank: int) -> BoolArray:
    """Return the rows whose leverage does not rule out that they are in the optimum."""
    gap = rank * excess
    bound = 1.0 + gap / 2.0 - math.sqrt(gap * (4.0 + gap - 4.0 / rank)) / 2.0
    return np.asarray(leverage >= bound * (1.0 - 1e-9))
