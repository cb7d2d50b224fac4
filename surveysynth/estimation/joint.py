"""Intervals that hold for all rows of a table at once: how the errors of rows hang together.

The errors of D rows have a part of sampling and a part of draws (methods 5):

    partial synthesis    e = z + mean of d_1..d_m,         z ~ N(0, U)
    posterior draws      e = z + mean of d_1..d_m - d_0,   z ~ N(0, V_X),  d_l ~ N(0, B*)

U: mean over datasets of the Taylor covariance of rows; V_X: that of the composition; B: covariance
of the draws' estimates. B has m - 1 degrees of freedom, so two rows without any relation have a
squared correlation of 1/(m - 1) in the mean: B* is B with what is off its diagonal multiplied by
1 - 1/(m - 1). Correlations too near zero make intervals too wide, never too narrow (Sidak 1967).

Each simulated table is treated as the release is: the variance of d_1..d_m in place of B, standard
error and degrees of freedom by the combining rule, and the level of the t interval that would just
reach the error. The quantile of the largest level of a table is the level of each row's interval,
whatever the kind of that interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtr

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.sample_design import SampleDesign

if TYPE_CHECKING:
    from surveysynth.estimation.taylor import LinearisedTable

#: Numbers in a table beyond which they count as independent, which is on the safe side.
MOST_NUMBERS = 600
#: Simulated tables: a coverage of 0.95 is met to 0.002.
SIMULATED, SEED = 10_000, 0
_AT_ONCE = 500


@dataclass(frozen=True, eq=False)
class RecordErrors:
    """The linearised variable of n records in D numbers of a table: ``inside`` - ``rest`` ``of``.

    inside: sparse (n, D); rest: (n, q) and of: (q, D), for what every record has in every row.
    """

    inside: Any
    rest: FloatArray
    of: FloatArray

    @classmethod
    def of_tables(cls, tables: "Sequence[LinearisedTable]") -> "RecordErrors":
        """Take the tables of one dataset, one for each level: the levels of a row side by side."""
        from scipy.sparse import hstack

        made = [_of_table(each) for each in tables]
        count, rows = len(made), tables[0].domains.n_rows
        order = np.arange(count * rows).reshape(count, rows).T.ravel()
        inside = hstack([each.inside for each in made], format="csc")[:, order]
        of = np.hstack([each.of for each in made])[:, order]
        return cls(inside.tocsr(), made[0].rest, of)

    def mean(self, times: float, group: IntArray) -> "RecordErrors":
        """Return a sum of ``times`` datasets as a mean, over records of a group (n,) too."""
        from scipy.sparse import csr_array

        n = group.size
        member = csr_array((np.ones(n), (group, np.arange(n))))
        size = np.bincount(group)[group][:, None]
        inside = (member.T @ (member @ self.inside)).multiply(1.0 / (size * times))
        rest = np.asarray(member.T @ (member @ self.rest)) / (size * times)
        return RecordErrors(inside.tocsr(), rest, self.of / times)

    def plus(self, other: "RecordErrors") -> "RecordErrors":
        """Return the sum of two datasets."""
        return RecordErrors(
            self.inside + other.inside, self.rest + other.rest, self.of + other.of
        )

    def covariance(self, design: SampleDesign) -> FloatArray:
        """Return the Taylor covariance (D, D) of the rows."""
        from scipy.sparse import csr_array, hstack

        effect = design.design_effect
        if effect is not None:
            design = design.one_stage
        whole = hstack([self.inside, csr_array(self.rest)], format="csr")
        if design.psu is not None:
            whole = csr_array((np.ones(design.n), (design.psu, np.arange(design.n)))) @ whole
        strata, size = design.psu_strata, design.psus_in_stratum
        sums = csr_array((np.ones(strata.size), (strata, np.arange(strata.size)))) @ whole
        # A single PSU is taken around zero; the multiplier says whether it counts at all.
        centring = np.where(size > 1, design.multiplier / size, 0.0)
        squares = whole.T @ whole.multiply(design.multiplier[strata][:, None]).tocsr()
        centres = sums.T @ sums.multiply(centring[:, None]).tocsr()
        products = np.asarray((squares - centres).todense(), dtype=np.float64)
        columns = self.of.shape[1]
        outer = np.vstack([np.eye(columns), -self.of])
        made = outer.T @ products @ outer
        return np.asarray(made if effect is None else effect * made, dtype=np.float64)


def _of_table(table: "LinearisedTable") -> RecordErrors:
    """Take one table of one dataset."""
    from scipy.sparse import csr_array

    codes, made, regression = table.domains.codes, table.linearised, table.regression
    sets, n = codes.shape
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.stack([made.inside(rows) for rows in codes])
    rest, of = np.zeros((n, 0)), np.zeros((0, table.domains.n_rows))
    if regression is not None:
        rest, of = regression.weighted, regression.coefficient.T
    elif made.outside is not None:
        # Of a record inside a row, what is taken off as from a record outside is put back.
        inside = inside + made.outside[codes] * table.weight
        rest, of = table.weight[:, None], made.outside[None]
    values = np.nan_to_num(inside, nan=0.0, posinf=0.0, neginf=0.0).ravel()
    places = np.tile(np.arange(n), sets), codes.ravel()
    matrix = csr_array((values, places), shape=(n, table.domains.n_rows))
    return RecordErrors(matrix, rest, np.nan_to_num(of, nan=0.0, posinf=0.0, neginf=0.0))


class JointErrors:
    """What gives the errors of all numbers of a table together, dataset after dataset.

    group: codes (n,) of public rows under posterior draws; None under partial synthesis.
    """

    def __init__(
        self, draws: int, replicates: int, sample_design: SampleDesign, group: IntArray | None
    ) -> None:
        self._shape, self._design, self._group = (draws, replicates), sample_design, group
        self._estimates: FloatArray | None = None
        self._taylor: FloatArray | float = 0.0
        self._sum: RecordErrors | None = None
        self._count = 0

    def add(
        self,
        draw: int,
        replicate: int,
        estimates: Sequence[FloatArray],
        pairs: "Sequence[LinearisedTable]",
    ) -> None:
        """Add one dataset: the estimates (D,) of each level, and what gives their variances."""
        estimate = np.stack(estimates, axis=1).ravel()
        if estimate.size > MOST_NUMBERS:
            return
        if self._estimates is None:
            self._estimates = np.full((*self._shape, estimate.size), np.nan)
        self._estimates[draw - 1, replicate - 1] = estimate
        errors = RecordErrors.of_tables(pairs)
        self._count += 1
        if self._group is None:
            self._taylor = self._taylor + errors.covariance(self._design)
        else:
            self._sum = errors if self._sum is None else self._sum.plus(errors)

    def law(self, se: FloatArray, between: FloatArray, df_design: float) -> "JointLaw":
        """Return the law of the errors of a table with these standard errors and b, (D,).

        The rows of a table with too many numbers are independent in it.
        """
        m, posterior = self._shape[0], self._group is not None
        if self._estimates is None:
            between = np.nan_to_num(between)
            drawn = between * ((1.0 + 1.0 / m) if posterior else 1.0 / m)
            rest = np.maximum(np.nan_to_num(se) ** 2 - drawn, 0.0)
            return JointLaw(rest, between, m, df_design, posterior=posterior)
        sampling = self._taylor / self._count
        if self._sum is not None and self._group is not None:
            # The weights outside are a mean too: their product, as in ``Composition``.
            sampling = self._sum.mean(self._count, self._group).covariance(self._design)
        by_draw, of_draws = self._estimates.mean(axis=1), np.zeros_like(sampling)
        if m > 1:
            of_draws = np.nan_to_num(np.atleast_2d(np.cov(by_draw, rowvar=False)))
        return JointLaw(np.asarray(sampling), of_draws, m, df_design, posterior=posterior)


@dataclass(frozen=True, eq=False)
class JointLaw:
    """The law of the errors of a table of D numbers.

    sampling, between: covariances (D, D), or variances (D,) of independent numbers; draws: m;
    df: degrees of freedom of the design; posterior: the rule for posterior draws.
    """

    sampling: FloatArray
    between: FloatArray
    draws: int
    df: float
    posterior: bool = False

    def of(self, known: BoolArray) -> "JointLaw":
        """Return the law of some of the numbers."""
        which = np.ix_(known, known) if self.sampling.ndim == 2 else known
        return replace(self, sampling=self.sampling[which], between=self.between[which])

    def worst_levels(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Simulate tables: the level (count,) of the interval that just reaches the worst row."""
        m, sampling = self.draws, _Normal.of(self.sampling)
        spurious = 1.0 / (m - 1) if m > 1 else 1.0
        of_draws = _Normal.of(self.between, spurious)
        error = sampling.draw(rng, (count,))
        if m == 1:
            spread, df = sampling.variance[None], np.full(1, self.df)
        else:
            draws = of_draws.draw(rng, (m, count))
            between = draws.var(axis=0, ddof=1)
            error += draws.mean(axis=0)
            if self.posterior:
                error -= of_draws.draw(rng, (count,))
            part = between * (1.0 + 1.0 / m if self.posterior else 1.0 / m)
            spread = sampling.variance + part
            # Satterthwaite's, and Reiter's where only draws are uncertain.
            of_design = sampling.variance**2 / self.df if self.posterior else 0.0
            with np.errstate(divide="ignore", invalid="ignore"):
                df = np.minimum(spread**2 / (part**2 / (m - 1) + of_design), self.df)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(spread > 0, np.abs(error) / np.sqrt(spread), 0.0)
        found = 2.0 * stdtr(np.where(np.isfinite(df), df, self.df), t) - 1.0
        return np.asarray(found.max(axis=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Normal:
    """Normal errors: ``factor`` (k, D) of what numbers share, ``own`` SD (D,) of the rest."""

    factor: FloatArray
    own: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, covariance: FloatArray, independent: float = 0.0) -> "_Normal":
        """Take a covariance (D, D), or variances (D,); a share of each is ``independent``."""
        if covariance.ndim == 1:
            return cls(np.zeros((0, covariance.size)), np.sqrt(covariance), covariance)
        variance = np.maximum(np.diag(covariance), 0.0)
        values, vectors = np.linalg.eigh((1.0 - independent) * covariance)
        kept = values > 1e-9 * max(float(values[-1]), 0.0)
        factor = (vectors[:, kept] * np.sqrt(values[kept])).T
        return cls(factor, np.sqrt(independent * variance), variance)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        """Draw errors (.., D)."""
        made = rng.standard_normal((*shape, len(self.factor))) @ self.factor
        if self.own.any():
            made = made + self.own * rng.standard_normal((*shape, self.own.size))
        return np.asarray(made, dtype=np.float64)


def simultaneous_level(law: JointLaw, known: BoolArray, level: float) -> float:
    """Return the level of each interval at which all ``known`` numbers (D,) hold at once.

    Numbers without an interval are not ``known``. One number alone has the ``level`` itself.
    Raises ``InputError`` if the level is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"The level of an interval must lie between 0 and 1, but got {level}.")
    if int(known.sum()) <= 1:
        return level
    rng = np.random.default_rng(SEED)  # published: about numbers that are known already
    of_known = law.of(known)
    times = SIMULATED // _AT_ONCE
    worst = np.concatenate([of_known.worst_levels(_AT_ONCE, rng) for _ in range(times)])
    return max(float(np.quantile(worst, level)), level)
