"""What the Gaussian models share: records by cell of X, weighted sufficient statistics, and the
log-likelihood of a record as a quadratic form.

All of z (transformed outcomes and log weight or log inclusion probability) is confidential here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surveysynth._types import FloatArray, IntArray, Theta

#: Doubles in one block of log-likelihoods (draws x records): 2 MB stays in a core's cache.
BLOCK = 1 << 18
#: Mean records a cell from which a matrix product a cell beats elementwise work.
SMALL_CELL = 16


@dataclass(frozen=True, repr=False)
class GaussianRecords:
    """Records of a Gaussian model, sorted by cell of X.

    x_cells (G, K) distinct rows of X; cell (n,) the cell of a record; z (n, q) in file order.
    ``order`` (n,) sorts the records by cell and ``starts`` (G + 1,) bounds the cells in it;
    ``centre`` (G, q) is a point near the records of a cell: log-likelihoods are expanded about it.
    """

    x_cells: FloatArray
    cell: IntArray
    z: FloatArray
    order: IntArray = field(init=False)
    starts: IntArray = field(init=False)
    centre: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        n_cells = self.x_cells.shape[0]
        sizes = np.bincount(self.cell, minlength=n_cells)
        sums = np.empty((n_cells, self.z.shape[1]))
        for j, column in enumerate(self.z.T):
            sums[:, j] = np.bincount(self.cell, weights=column, minlength=n_cells)
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "order", np.argsort(self.cell, kind="stable"))
        set_field(self, "starts", np.concatenate([[0], np.cumsum(sizes)]))
        set_field(self, "centre", sums / np.maximum(sizes, 1)[:, None])

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.cell.shape[0])


@dataclass(frozen=True, repr=False)
class GaussianStats:
    """Weighted sufficient statistics of B databases (methods 4), about a least-squares fit.

    total (B,) sum of alpha; x_sum (B, K) X'alpha; gram (B, K, K) X'AX; fit (B, K, q) a solution of
    X'AX b = X'AZ; residual (B, q, q) = (Z - X fit)'A(Z - X fit), free of the cancellation that
    Z'AZ suffers. The weighted sum of squares at b is residual + (b - fit)'X'AX(b - fit).
    """

    total: FloatArray
    x_sum: FloatArray
    gram: FloatArray
    fit: FloatArray
    residual: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """Columns of X and of z."""
        k, q = self.fit.shape[-2:]
        return k, q

    def repeated(self, chains: int) -> "GaussianStats":
        """The same statistics for ``chains`` chains a database: leading axis B * chains."""
        parts = (self.total, self.x_sum, self.gram, self.fit, self.residual)
        return GaussianStats(*(np.repeat(part, chains, axis=0) for part in parts))

    def cross(self) -> FloatArray:
        """X'AZ, (B, K, q)."""
        return self.gram @ self.fit

    def sum_of_squares(self, beta: FloatArray) -> FloatArray:
        """(Z - X beta)'A(Z - X beta) for beta (B, K, q): (B, q, q)."""
        shift = beta - self.fit
        return self.residual + shift.swapaxes(-1, -2) @ self.gram @ shift

    def start_covariance(self) -> FloatArray:
        """A positive definite guess of the residual covariance, (B, q, q), to start chains from.

        A perfect fit (no more records with weight than columns) would start them at zero, where
        the precision of the coefficients overflows its digits: a millionth of the mean square of
        each column of Z is added, or one where there are no records.
        """
        mass = np.maximum(self.total, 1.0)[:, None]
        explained = np.einsum("bkq,bkl,blq->bq", self.fit, self.gram, self.fit)
        squares = np.einsum("bqq->bq", self.residual) + explained
        floor = np.where(squares > 1e-290, 1e-6 * squares / mass, 1.0)
        result: FloatArray = self.residual / mass[:, :, None]
        return result + floor[:, :, None] * np.eye(floor.shape[1])

    def outcome_squares(self, beta: FloatArray) -> FloatArray:
        """Weighted sum of squares of y - X beta, y the first column of Z: beta (B, K) to (B,).

        Here and below a single database (B = 1) broadcasts over the parameters.
        """
        shift = beta - self.fit[:, :, 0]
        squares = (shift * _product(self.gram, shift)).sum(-1)
        return np.asarray(self.residual[:, 0, 0] + squares, dtype=np.float64)

    def outcome_slope(self, beta: FloatArray) -> FloatArray:
        """Gradient (B, K) of ``outcome_squares``."""
        return 2.0 * _product(self.gram, beta - self.fit[:, :, 0])

    def conditional_squares(self, selection: FloatArray) -> FloatArray:
        """Weighted sum of squares of v - [y, X] selection, (y, v) the columns of Z.

        selection (B, 1 + K): the slope on y, then the coefficients of X.
        """
        slope, shift = self._conditional_shift(selection)
        r_yy, r_yv, r_vv = self.residual[:, 0, 0], self.residual[:, 0, 1], self.residual[:, 1, 1]
        squares: FloatArray = r_vv - 2 * slope * r_yv + slope * slope * r_yy
        squares = squares + (shift * _product(self.gram, shift)).sum(-1)
        return np.maximum(squares, 0.0)

    def conditional_slope(self, selection: FloatArray) -> FloatArray:
        """Gradient (B, 1 + K) of ``conditional_squares``."""
        slope, shift = self._conditional_shift(selection)
        by_x = _product(self.gram, shift)
        by_y = slope * self.residual[:, 0, 0] - self.residual[:, 0, 1]
        by_y = by_y + (self.fit[:, :, 0] * by_x).sum(-1)
        return 2.0 * np.concatenate([by_y[:, None], by_x], axis=1)

    def _conditional_shift(self, selection: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope = selection[:, 0]
        return slope, selection[:, 1:] - self.fit[:, :, 1] + slope[:, None] * self.fit[:, :, 0]

    def conditional_gram(self) -> tuple[FloatArray, FloatArray]:
        """Gram matrix (B, 1 + K, 1 + K) of [y, X] and its products (B, 1 + K) with v, where
        (y, v) are the columns of Z."""
        batch, k = self.fit.shape[:2]
        fit_y, fit_v = self.fit[:, :, 0], self.fit[:, :, 1]
        cross_y = _product(self.gram, fit_y)
        gram = np.empty((batch, k + 1, k + 1))
        gram[:, 0, 0] = self.residual[:, 0, 0] + (cross_y * fit_y).sum(-1)
        gram[:, 0, 1:] = gram[:, 1:, 0] = cross_y
        gram[:, 1:, 1:] = self.gram
        head = self.residual[:, 0, 1] + (cross_y * fit_v).sum(-1)
        return gram, np.concatenate([head[:, None], _product(self.gram, fit_v)], axis=1)

    def stan_data(self) -> dict[str, Any]:
        """What the Stan programs share of one database, JSON-ready; gram exactly symmetric."""
        return {
            "total": float(self.total[0]),
            "gram": (0.5 * (self.gram[0] + self.gram[0].T)).tolist(),
            "fit": self.fit[0].tolist(),
            "residual": (0.5 * (self.residual[0] + self.residual[0].T)).tolist(),
        }


def compress(records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
    """One pass over the records: the statistics of one database, B = 1 (methods 4).

    risk_weights alpha (n,) in [0, 1].
    """
    x, cell, z = records.x_cells, records.cell, records.z
    n_cells, n_outcomes = x.shape[0], z.shape[1]
    mass = np.bincount(cell, weights=risk_weights, minlength=n_cells)
    safe_mass = np.where(mass > 0, mass, 1.0)[:, None]
    means = np.empty((n_cells, n_outcomes))
    for j in range(n_outcomes):
        deviation = risk_weights * (z[:, j] - records.centre[cell, j])
        means[:, j] = np.bincount(cell, weights=deviation, minlength=n_cells)
    means = records.centre + means / safe_mass
    within = z - means[cell]
    gram = (x * mass[:, None]).T @ x
    root = np.sqrt(mass)[:, None]
    fit = _least_squares(root * x, root * means)
    between = root * (means - x @ fit)
    residual = (within * risk_weights[:, None]).T @ within + between.T @ between
    return GaussianStats(
        total=np.array([mass.sum()]),
        x_sum=(x * mass[:, None]).sum(0)[None],
        gram=gram[None],
        fit=fit[None],
        residual=residual[None],
    )


def _least_squares(x: FloatArray, z: FloatArray) -> FloatArray:
    """A solution of x b = z, (K, q); x (G, K) may have columns without weight.

    A direction that holds less than 1e-7 of the length of the scaled columns is left out: X'AX
    knows nothing of it (1e-14), and the huge b along it would cost sums of squares their digits.
    """
    length = np.sqrt((x * x).sum(axis=0))
    length = np.where(length > 0, length, 1.0)
    scaled = np.linalg.lstsq(x / length, z, rcond=1e-7)[0]
    return np.asarray(scaled / length[:, None], dtype=np.float64)


def _product(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    result: FloatArray = (matrix @ vector[..., None])[..., 0]
    return result


@dataclass(frozen=True, repr=False)
class QuadraticForm:
    """Log-likelihood of S draws as a quadratic form within cells of X.

    log p(record | draw s) = constant[s, g] + linear[s, g] · d - d' precision[s] d / 2, where
    d = z - centre[g] and g is the record's cell. constant (S, g), linear (S, g, q),
    precision (S, q, q).
    """

    constant: FloatArray
    linear: FloatArray
    precision: FloatArray

    def coefficients(self, cell: int) -> FloatArray:
        """(S, 1 + q + q(q+1)/2) coefficients of the features of ``features`` for one cell."""
        q = self.precision.shape[-1]
        upper_i, upper_j = np.triu_indices(q)
        factor = np.where(upper_i == upper_j, -0.5, -1.0)
        quadratic = self.precision[:, upper_i, upper_j] * factor
        return np.concatenate(
            [self.constant[:, cell, None], self.linear[:, cell], quadratic], axis=1
        )


def normal_form(
    beta: FloatArray, covariance: FloatArray, x_cells: FloatArray, centre: FloatArray
) -> QuadraticForm:
    """log N(z | x beta, Sigma): beta (S, K, q), covariance (S, q, q), the cells given."""
    precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    mean = np.matmul(x_cells, beta) - centre
    linear = mean @ precision
    q = precision.shape[-1]
    log_det = np.linalg.slogdet(covariance)[1]
    constant = -0.5 * (
        np.einsum("sgq,sgq->sg", linear, mean) + log_det[:, None] + q * np.log(2 * np.pi)
    )
    return QuadraticForm(constant, linear, precision)


def conditional_form(
    beta: FloatArray,
    selection: FloatArray,
    variance: FloatArray,
    x_cells: FloatArray,
    centre: FloatArray,
) -> QuadraticForm:
    """log N(y | x beta, v_1) + log N(v | [y, x] selection, v_2) for z = (y, v), the cells given.

    beta (S, K), selection (S, 1 + K), variance (S, 2).
    """
    slope, (v_y, v_v) = selection[:, 0], variance.T
    # Residuals of a record: e_y = d_y + r_y and e_v = d_v - slope d_y + r_v.
    r_y = centre[:, 0] - beta @ x_cells.T
    r_v = centre[:, 1] - slope[:, None] * centre[:, 0] - selection[:, 1:] @ x_cells.T
    log_norm = -0.5 * np.log(v_y * v_v) - np.log(2 * np.pi)
    squares = r_y * r_y / v_y[:, None] + r_v * r_v / v_v[:, None]
    slope_v = -r_v / v_v[:, None]
    linear = np.stack([-r_y / v_y[:, None] - slope[:, None] * slope_v, slope_v], axis=-1)
    precision = np.empty((slope.shape[0], 2, 2))
    precision[:, 0, 0] = 1.0 / v_y + slope * slope / v_v
    precision[:, 0, 1] = precision[:, 1, 0] = -slope / v_v
    precision[:, 1, 1] = 1.0 / v_v
    return QuadraticForm(log_norm[:, None] - 0.5 * squares, linear, precision)


def features(deviation: FloatArray) -> FloatArray:
    """(1 + q + q(q+1)/2, n) features 1, d_j, d_j d_k (j <= k) of deviations d (n, q)."""
    upper_i, upper_j = np.triu_indices(deviation.shape[1])
    products = deviation[:, upper_i] * deviation[:, upper_j]
    return np.concatenate([np.ones((deviation.shape[0], 1)), deviation, products], axis=1).T


def cell_blocks(starts: IntArray, draws: int, budget: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Ranges [first, last) of cells whose coefficients and records fit a memory budget.

    ``budget`` counts doubles a block (draws x records, at least one cell a block).
    """
    limit = max(1, budget // max(draws, 1))
    first, n_cells = 0, starts.shape[0] - 1
    while first < n_cells:
        last = int(np.searchsorted(starts, starts[first] + limit, side="right")) - 1
        last = min(max(last, first + 1), first + limit, n_cells)
        yield first, last
        first = last


def log_lik_blocks(
    quadratic_form: Callable[[Theta, FloatArray, FloatArray], QuadraticForm],
    theta: Theta,
    records: GaussianRecords,
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Streams (rows (b,), log_lik (S, b)) over blocks of records within cells of X.

    Large cells: one small matrix product a block. Many small cells (continuous predictors): the
    same form elementwise. The array yielded is overwritten by the next block.
    """
    draws = next(iter(theta.values())).shape[0]
    for first, last in cell_blocks(records.starts, draws):
        form = quadratic_form(theta, records.x_cells[first:last], records.centre[first:last])
        begin, end = records.starts[first], records.starts[last]
        if end - begin >= SMALL_CELL * (last - first):
            for cell in range(first, last):
                yield from _cell_by_product(form, cell, cell - first, records, draws)
        else:
            yield _cells_elementwise(form, first, records.order[begin:end], records)


def _cell_by_product(
    form: QuadraticForm, cell: int, local: int, records: GaussianRecords, draws: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    coefficients = form.coefficients(local)
    step = max(1, BLOCK // draws)
    for begin in range(records.starts[cell], records.starts[cell + 1], step):
        rows = records.order[begin : min(begin + step, records.starts[cell + 1])]
        yield rows, coefficients @ features(records.z[rows] - records.centre[cell])


def _cells_elementwise(
    form: QuadraticForm, first: int, rows: IntArray, records: GaussianRecords
) -> tuple[IntArray, FloatArray]:
    local = records.cell[rows] - first
    deviation = records.z[rows] - records.centre[records.cell[rows]]
    q = deviation.shape[1]
    log_lik = form.constant[:, local]
    for j in range(q):
        slope = form.linear[:, local, j]
        for k in range(j, q):
            factor = 0.5 if j == k else 1.0
            slope -= factor * form.precision[:, j, k, None] * deviation[None, :, k]
        log_lik += slope * deviation[None, :, j]
    return rows, log_lik
