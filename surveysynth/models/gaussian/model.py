"""Base class of the Gaussian models: log-likelihoods as quadratic forms in z (methods 4).

Within a cell of X the log-likelihood of a record is quadratic in z: the transformed outcomes and
the log weight or log inclusion probability. All of z is confidential.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from surveysynth._support.messages import noisy_statistics_alone
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import INTERACTION_PRIOR, Simulated
from surveysynth.models.gaussian import statistics
from surveysynth.models.gaussian.statistics import GaussianRecords, GaussianStats
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling.plan import SamplingPlan, Streams, Sweeps, run_sweeps
from surveysynth.survey.survey import PublicDesign

#: Doubles in one range of log-likelihoods (draws x records): 2 MB stays in a core's cache.
BLOCK = 1 << 18
#: Mean records per block from which matrix products are faster than elementwise work.
SMALL_BLOCK = 16


@dataclass(frozen=True, repr=False)
class QuadraticForm:
    """Log-likelihood of S draws as a quadratic form within cells of X, the blocks.

    log p(record | draw s) = constant[s, g] + linear[s, g] · d - d' precision[s] d / 2, where
    d = z - centre[g] and g is the record's cell.
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
    """Return log N(z | x beta, Sigma) for blocks given by rows of X and centres.

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


#: (theta, rows of X (g, K), centres (g, q)) of g blocks to their form.
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
        stats = statistics.compress(records, risk_weights)
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
