"""Base class of the Gaussian models: records by cell of X, sums, and quadratic forms (methods 4).

Within a cell of X the log-likelihood of a record is quadratic in z: the transformed outcomes and
the log weight or log inclusion probability. All of z is confidential.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import noisy_statistics_alone
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import INTERACTION_PRIOR, Simulated
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling.plan import SamplingPlan, Streams, Sweeps, run_sweeps
from surveysynth.survey.survey import PublicDesign

#: Arrays of ``GaussianStats`` with a leading axis of databases.
ARRAYS = ("total", "x_sum", "gram", "fit", "residual")


class GaussianRecords(Unpickled):
    """Records of a Gaussian model, sorted into cells of X, which share a linear predictor.

    x_cells (G, K): distinct rows of X; cell (n,): the cell of a record; z (n, q) in file order.
    ``order`` (n,) sorts records by cell, ``starts`` (G + 1,) bounds the cells in it. ``centre``
    (G, q) is a point near the records of a cell, about which log-likelihoods are expanded.
    ``shrunken``: number of shrunken columns of X, which come last.
    """

    def __init__(
        self, x_cells: FloatArray, cell: IntArray, z: FloatArray, shrunken: int = 0
    ) -> None:
        self.x_cells, self.cell, self.z, self.shrunken = x_cells, cell, z, shrunken
        cells = x_cells.shape[0]
        sizes = np.bincount(cell, minlength=cells)
        sums = np.empty((cells, z.shape[1]))
        for j, column in enumerate(z.T):
            sums[:, j] = np.bincount(cell, weights=column, minlength=cells)
        self.order = np.argsort(cell, kind="stable")
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.centre = sums / np.maximum(sizes, 1)[:, None]

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.cell.shape[0])


@dataclass(frozen=True, repr=False)
class GaussianStats(Unpickled):
    """Weighted sufficient statistics of B databases (methods 4), about a least-squares fit.

    total (B,): sum of alpha; x_sum (B, K): X'alpha; gram (B, K, K): X'AX; fit (B, K, q): a solution
    of X'AX b = X'AZ; residual (B, q, q) = (Z - X fit)'A(Z - X fit), without the cancellation of
    Z'AZ. The weighted sum of squares at b is residual + (b - fit)'X'AX(b - fit). shrunken: number
    of shrunken columns of X, which come last; ridges: those whose ridge is in gram, fit and
    residual; more: records of another prior that are there.
    """

    total: FloatArray
    x_sum: FloatArray
    gram: FloatArray
    fit: FloatArray
    residual: FloatArray
    shrunken: int = 0
    ridges: int = 0
    more: int = 0

    @property
    def count(self) -> FloatArray:
        """Sum of alpha with the records that stand for priors, (B,): the power of a variance."""
        return self.total + self.ridges + self.more

    def with_slope_prior(self, size: float) -> "GaussianStats":
        """Return the statistics of (y, v) with the prior N(0, s^2 / size^2) of v's slope on y.

        It is the likelihood of one more record that is ``size`` away in y from its mean and not in
        v; only squares of v given y read it."""
        residual = self.residual.copy()
        residual[:, 0, 0] += size**2
        return replace(self, residual=residual, more=self.more + 1)

    def with_ridge(self, scale: float | None) -> "GaussianStats":
        """Return the statistics with the prior B_k | Sigma ~ N(0, scale^2 Sigma) of shrunken k.

        It is the likelihood of one more record a column, with z = 0 and x_k = 1 / scale, in no sum
        but those of squares. A scale of None is that of a model without this prior.
        """
        if scale is None or not self.shrunken:
            return replace(self, shrunken=0)
        k = self.fit.shape[1]
        ridge = np.where(np.arange(k) < k - self.shrunken, 0.0, scale**-2)
        gram = self.gram + np.diag(ridge)
        length = np.sqrt(np.einsum("bkk->bk", gram))
        inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        scaled = gram * inverse[:, :, None] * inverse[:, None, :]
        solution = np.linalg.pinv(scaled, rcond=1e-14, hermitian=True)
        pulled = inverse[:, :, None] * ridge[:, None] * self.fit
        shift = -inverse[:, :, None] * (solution @ pulled)
        fit = self.fit + shift
        residual = self.residual + shift.swapaxes(-1, -2) @ self.gram @ shift
        residual = residual + fit.swapaxes(-1, -2) @ (ridge[:, None] * fit)
        return replace(self, gram=gram, fit=fit, residual=residual, ridges=self.shrunken, more=0)

    def repeated(self, chains: int) -> "GaussianStats":
        """Repeat the statistics for ``chains`` chains of each database: leading axis B * chains."""
        repeated: dict[str, Any] = {
            name: np.repeat(getattr(self, name), chains, axis=0) for name in ARRAYS
        }
        return replace(self, **repeated)

    @classmethod
    def stacked(cls, stats: Sequence["GaussianStats"]) -> "GaussianStats":
        """Join several databases with equally many columns of X."""
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(each, name) for each in stats]) for name in ARRAYS
        }
        return replace(stats[0], **joined)

    def sum_of_squares(self, beta: FloatArray) -> FloatArray:
        """Return (Z - X beta)'A(Z - X beta), (B, q, q), for beta (B, K, q)."""
        shift = beta - self.fit
        return self.residual + shift.swapaxes(-1, -2) @ self.gram @ shift

    def start_covariance(self) -> FloatArray:
        """Guess a positive definite residual covariance (B, q, q) to start chains from.

        After a perfect fit (no more records with weight than columns) the residual covariance is
        zero and the precision of the coefficients overflows. So a millionth of the mean square of
        each column of Z is added, or one where there are no records.
        """
        mass = np.maximum(self.count, 1.0)[:, None]
        explained = np.einsum("bkq,bkl,blq->bq", self.fit, self.gram, self.fit)
        squares = np.einsum("bqq->bq", self.residual) + explained
        floor = np.where(squares > 1e-290, 1e-6 * squares / mass, 1.0)
        result: FloatArray = self.residual / mass[:, :, None]
        return result + floor[:, :, None] * np.eye(floor.shape[1])

    def outcome_squares(self, beta: FloatArray) -> FloatArray:
        """Return the weighted sum of squares of y - X beta, y the first column of Z.

        beta (B, K) to (B,). Here and below a single database (B = 1) broadcasts over the
        parameters.
        """
        shift = beta - self.fit[:, :, 0]
        squares = (shift * _product(self.gram, shift)).sum(-1)
        return np.asarray(self.residual[:, 0, 0] + squares, dtype=np.float64)

    def conditional_squares(self, selection: FloatArray) -> FloatArray:
        """Return the weighted sum of squares of v - [y, X] selection, (y, v) the columns of Z.

        selection (B, 1 + K): the slope on y, then the coefficients of X.
        """
        slope = selection[:, 0]
        shift = selection[:, 1:] - self.fit[:, :, 1] + slope[:, None] * self.fit[:, :, 0]
        r_yy, r_yv, r_vv = self.residual[:, 0, 0], self.residual[:, 0, 1], self.residual[:, 1, 1]
        squares: FloatArray = r_vv - 2 * slope * r_yv + slope * slope * r_yy
        squares = squares + (shift * _product(self.gram, shift)).sum(-1)
        return np.maximum(squares, 0.0)

    def conditional_gram(self) -> tuple[FloatArray, FloatArray]:
        """Return the Gram matrix (B, 1 + K, 1 + K) of [y, X] and its products (B, 1 + K) with v.

        (y, v) are the columns of Z.
        """
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
        """Return the data that Stan programs share, JSON-ready; gram exactly symmetric."""
        return {
            "K_shrunken": self.ridges,
            "total": float(self.count[0]),
            "gram": (0.5 * (self.gram[0] + self.gram[0].T)).tolist(),
            "fit": self.fit[0].tolist(),
            "residual": (0.5 * (self.residual[0] + self.residual[0].T)).tolist(),
        }


def compress(records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
    """Compute the statistics of one database, B = 1, in one pass over the records (methods 4).

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
        shrunken=records.shrunken,
    )


def _least_squares(x: FloatArray, z: FloatArray) -> FloatArray:
    """Solve x b = z, (K, q), by least squares; x (G, K) may have columns without weight.

    A direction with less than 1e-7 of the length of the scaled columns is omitted: X'AX has no
    accurate digits for it (1e-14), and a huge b along it would make sums of squares inaccurate.
    """
    length = np.sqrt((x * x).sum(axis=0))
    length = np.where(length > 0, length, 1.0)
    scaled = np.linalg.lstsq(x / length, z, rcond=1e-7)[0]
    return np.asarray(scaled / length[:, None], dtype=np.float64)


def _product(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    return np.asarray((matrix @ vector[..., None])[..., 0])


#: Doubles in one range of log-likelihoods (draws x records): 2 MB stays in a core's cache.
BLOCK = 1 << 18
#: Mean records per block from which matrix products are faster than elementwise work.
SMALL_BLOCK = 16


@dataclass(frozen=True, repr=False)
class QuadraticForm:
    """Log-likelihood of S draws as a quadratic form within cells of X, the blocks.

    log p(record | draw s) = constant[s, g] + linear[s, g] · d - d' precision[s] d / 2, where
    d = z - center[g] and g is the record's cell.
    constant (S, g), linear (S, g, q), precision (S, q, q).
    """

    constant: FloatArray
    linear: FloatArray
    precision: FloatArray

    def coefficients(self, block: int) -> FloatArray:
        """Return (S, 1 + q + q(q+1)/2) coefficients of ``features`` for one block."""
        q = self.precision.shape[-1]
        upper_i, upper_j = np.triu_indices(q)
        factor = np.where(upper_i == upper_j, -0.5, -1.0)
        quadratic = self.precision[:, upper_i, upper_j] * factor
        return np.concatenate(
            [self.constant[:, block, None], self.linear[:, block], quadratic], axis=1
        )


def normal_form(
    beta: FloatArray,
    covariance: FloatArray,
    x_cells: FloatArray,
    centre: FloatArray,
) -> QuadraticForm:
    """Return log N(z | x beta, Sigma) for blocks given by rows of X and centers.

    beta (S, K, q), covariance (S, q, q).
    """
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
    """Return log N(y | x beta, v_1) + log N(v | [y, x] selection, v_2), z = (y, v).

    For the blocks given: beta (S, K), selection (S, 1 + K), variance (S, 2).
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
    """Return features 1, d_j, d_j d_k (j <= k) of deviations d (n, q): (1 + q + q(q+1)/2, n)."""
    upper_i, upper_j = np.triu_indices(deviation.shape[1])
    products = deviation[:, upper_i] * deviation[:, upper_j]
    return np.concatenate([np.ones((deviation.shape[0], 1)), deviation, products], axis=1).T


def ranges_of_blocks(
    starts: IntArray, draws: int, budget: int = BLOCK
) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, last) of blocks whose coefficients and records fit a memory budget.

    ``budget`` counts doubles in a range (draws x records); a range has at least one block.
    """
    limit = max(1, budget // max(draws, 1))
    first, n_blocks = 0, starts.shape[0] - 1
    while first < n_blocks:
        last = int(np.searchsorted(starts, starts[first] + limit, side="right")) - 1
        last = min(max(last, first + 1), first + limit, n_blocks)
        yield first, last
        first = last


#: (theta, rows of X (g, K), centers (g, q)) of g blocks to their form.
FormOf = Callable[[Theta, FloatArray, FloatArray], QuadraticForm]


def log_lik_blocks(
    quadratic_form: FormOf, theta: Theta, records: GaussianRecords
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Stream (rows (b,), log_lik (S, b)) over ranges of blocks of records.

    Large blocks take one small matrix product each; many small ones (continuous predictors) are
    evaluated elementwise. The array yielded is overwritten by the next range.
    """
    draws = next(iter(theta.values())).shape[0]
    for first, last in ranges_of_blocks(records.starts, draws):
        form = quadratic_form(theta, records.x_cells[first:last], records.centre[first:last])
        begin, end = records.starts[first], records.starts[last]
        if end - begin >= SMALL_BLOCK * (last - first):
            for block in range(first, last):
                yield from _block_by_product(form, block, block - first, records, draws)
        else:
            yield _blocks_elementwise(form, first, last, records)


def _block_by_product(
    form: QuadraticForm, block: int, local: int, records: GaussianRecords, draws: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    coefficients, centre = form.coefficients(local), records.centre[block]
    step = max(1, BLOCK // draws)
    for begin in range(records.starts[block], records.starts[block + 1], step):
        rows = records.order[begin : min(begin + step, records.starts[block + 1])]
        yield rows, coefficients @ features(records.z[rows] - centre)


def _blocks_elementwise(
    form: QuadraticForm, first: int, last: int, records: GaussianRecords
) -> tuple[IntArray, FloatArray]:
    starts = records.starts[first : last + 1]
    rows = records.order[starts[0] : starts[-1]]
    local = np.repeat(np.arange(last - first), np.diff(starts))
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


class GaussianModel(WeightedModel):
    """A model whose log-likelihood is quadratic in the record z (n, q), by cell of X.

    Samplers use sums alone, for any number of databases side by side, with common random numbers
    (``Streams``).
    """

    batched = True
    common_random_numbers = True
    #: ``Sweeps`` of a batch of chains, made of statistics, priors and streams.
    gibbs: ClassVar[type[Any]]
    #: Public columns whose cells differ in residual spread, under noisy statistics alone; None for
    #: by and strata.
    covariance_by: tuple[str, ...] | None = ()

    def of(self, design: PublicDesign) -> Self:
        """Return the model; raise ``InputError`` for a design that noisy statistics alone take."""
        if self.covariance_by:
            raise InputError(noisy_statistics_alone("covariance_by gives each cell a spread"))
        return super().of(design)

    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> GaussianRecords:
        """Return the records of a dataset on the model's scale."""
        matrix = design.matrix
        return GaussianRecords(matrix.x_cells, matrix.cell, simulated.z, matrix.shrunken)

    def compress(self, records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
        """Compute weighted sufficient statistics (methods 4), with the ridge on interactions."""
        stats = compress(records, risk_weights)
        return stats.with_ridge(self.priors.get(INTERACTION_PRIOR))

    def sample(
        self,
        stats: GaussianStats,
        plan: SamplingPlan,
        rng: np.random.Generator | Sequence[np.random.Generator],
    ) -> Theta:
        """Draw the model's parameters by Gibbs, leading axes (databases, chains, draws)."""
        streams = Streams.of(rng, stats.total.shape[0], plan.chains)
        sampler: Sweeps = self.gibbs(stats.repeated(plan.chains), self.priors, streams)
        return run_sweeps(sampler, plan)

    @abstractmethod
    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray
    ) -> QuadraticForm:
        """Return the log-likelihood of S draws about ``centre`` (g, q) in cells x_cells (g, K)."""

    def log_lik_blocks(
        self, theta: Theta, records: GaussianRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream unweighted log-likelihoods, (rows, (S, rows)) (methods 4)."""
        return log_lik_blocks(self.quadratic_form, theta, records)
