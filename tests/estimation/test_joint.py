"""Intervals that hold for all rows at once.

Truth: covariances written out with every record in every row; the largest of normal numbers by
quadrature; repeated samples of known populations, in which pointwise intervals, and those by
Bonferroni with a wrong number of rows, do not hold.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation import joint
from surveysynth.estimation.calibration import CalibratedWeights, calibrated_weights
from surveysynth.estimation.combining import CombiningRule, PartialSynthesis, t_interval
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.joint import JointLaw, RecordErrors, simultaneous_level
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import LinearisedTable, linearise_domains
from surveysynth.estimation.total_variance import TotalVariance
from surveysynth.inference.synthesis import SyntheticDataset

A, B = ("a", "b", "c", "d"), ("p", "q", "r", "s", "t")


def table_rows(cell: IntArray) -> Domains:
    """Rows by two variables, and all margins: 30 of 20 cells."""
    frame = pd.DataFrame({"a": np.array(A)[cell // 5], "b": np.array(B)[cell % 5]})
    return build_domains(frame, ["a", "b"], {"a": A, "b": B})


# Covariances


DESIGNS = {
    "one stratum": lambda cell: SampleDesign(np.zeros(cell.size, dtype=np.int64)),
    "strata": lambda cell: SampleDesign(cell // 5),
    "units": lambda cell: SampleDesign(np.arange(cell.size) % 2, np.arange(cell.size) % 24),
    "fpc": lambda cell: SampleDesign(cell // 5, fpc=np.array([0.0, 0.2, 0.5, 0.9])),
}


def linearised(
    statistic: str, linearisation: str, design: SampleDesign, cell: IntArray, calibrated: bool
) -> LinearisedTable:
    rng = np.random.default_rng(3)
    weight, y = rng.uniform(1, 4, cell.size), rng.normal(cell * 0.1, 1.0)
    calibration = None
    if calibrated:
        x = np.column_stack([np.ones(cell.size), cell % 2])
        made = calibrated_weights(x, weight, np.array([700.0, 380.0]))
        calibration, weight = CalibratedWeights(made, weight, x), made
    return linearise_domains(
        table_rows(cell), weight=weight, outcome=y, statistic=statistic,
        linearisation=linearisation, population_size=1000.0, calibration=calibration,
    )  # fmt: skip


def written_out(table: LinearisedTable, design: SampleDesign) -> FloatArray:
    """The covariance, with u (n, D) of every record in every row."""
    n, rows = table.weight.size, table.domains.n_rows
    u = np.zeros((n, rows))
    for codes in table.domains.codes:
        inside = table.linearised.inside(codes)
        for i in range(n):
            u[i, codes[i]] = inside[i]
    if table.linearised.outside is not None and table.regression is None:
        member = np.zeros((n, rows), dtype=bool)
        for codes in table.domains.codes:
            member[np.arange(n), codes] = True
        u = np.where(member, u, -np.outer(table.weight, table.linearised.outside))
    if table.regression is not None:
        u = u - table.regression.weighted @ table.regression.coefficient.T
    psu = np.arange(n) if design.psu is None else design.psu
    totals = np.array([u[psu == k].sum(axis=0) for k in range(psu.max() + 1)])
    result = np.zeros((rows, rows))
    for h in range(design.n_strata):
        part = totals[design.psu_strata == h]
        result += design.share_not_sampled[h] * len(part) * np.cov(part.T)
    return result


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize(
    ("statistic", "linearisation", "calibrated"),
    [("count", "ratio", False), ("total", "plain", False), ("mean", "ratio", False),
     ("difference(mean, a: a - b)", "ratio", False), ("total", "plain", True)],
)  # fmt: skip
def test_the_covariance_is_that_of_records_in_rows(
    name: str, statistic: str, linearisation: str, calibrated: bool
) -> None:
    cell = np.sort(np.random.default_rng(1).integers(0, 20, 240))
    design = DESIGNS[name](cell)
    table = linearised(statistic, linearisation, design, cell, calibrated)
    made = RecordErrors.of_tables([table]).covariance(design)
    expected = written_out(table, design)
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    variance = table.variance(design)
    known = np.isfinite(variance)
    np.testing.assert_allclose(
        np.diag(made)[known], variance[known], rtol=1e-7, atol=1e-9 * variance[known].max()
    )


def test_levels_of_a_row_stand_side_by_side() -> None:
    """Shares of two levels add up to 1: their errors are opposite."""
    cell = np.sort(np.random.default_rng(1).integers(0, 20, 300))
    yes = np.random.default_rng(2).integers(0, 2, cell.size).astype(float)
    tables = [
        linearise_domains(
            table_rows(cell), weight=np.ones(cell.size), outcome=each, statistic="proportion",
            linearisation="plain",
        )
        for each in (yes, 1 - yes)
    ]  # fmt: skip
    design = SampleDesign(np.zeros(cell.size, dtype=np.int64))
    made = RecordErrors.of_tables(tables).covariance(design)
    first, second = np.arange(0, 60, 2), np.arange(1, 60, 2)
    np.testing.assert_allclose(made[first, second], -np.diag(made)[first], rtol=1e-9)
    np.testing.assert_allclose(np.diag(made)[first], tables[0].variance(design), rtol=1e-9)


# The level


def level_by_quadrature(count: int, correlation: float, level: float) -> float:
    """Of ``count`` numbers of which all pairs have one correlation."""
    def held(c: float) -> float:
        def given(z: float) -> float:
            low, high = ((side * c - np.sqrt(correlation) * z) / np.sqrt(1 - correlation)
                         for side in (-1, 1))  # fmt: skip
            return float(stats.norm.pdf(z) * (stats.norm.cdf(high) - stats.norm.cdf(low)) ** count)

        return float(integrate.quad(given, -9, 9)[0])

    low, high = 1.0, 6.0
    for _ in range(25):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if held(middle) < level else (low, middle)
    return float(2 * stats.norm.cdf(low) - 1)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_level_of_equally_related_numbers(correlation: float, level: float) -> None:
    count = 25
    covariance = np.full((count, count), correlation) + (1 - correlation) * np.eye(count)
    scale = np.linspace(0.1, 50, count)  # without any effect
    law = of_sampling(covariance * np.outer(scale, scale))
    made = simultaneous_level(law, np.ones(count, dtype=bool), level)
    expected = level_by_quadrature(count, correlation, level)
    odds = (1 - made) / (1 - expected)
    assert odds == pytest.approx(1.0, abs=0.12)
    # Bonferroni is beyond that where numbers are related, pointwise intervals everywhere.
    bonferroni = (1 - level) / count
    assert (bonferroni / (1 - expected) > 0.88) is (correlation == 0.0)
    assert (1 - level) / (1 - expected) > 2


def of_sampling(covariance: FloatArray) -> JointLaw:
    """Errors of sampling alone, with as many degrees of freedom as there may be."""
    return JointLaw(covariance, np.zeros_like(covariance), 1, 1e9)


def test_one_number_and_numbers_that_are_one_have_the_pointwise_level() -> None:
    one = np.array([True, False, False])
    assert simultaneous_level(of_sampling(np.eye(3)), one, 0.9) == 0.9
    same = of_sampling(np.ones((40, 40)))
    made = simultaneous_level(same, np.ones(40, dtype=bool), 0.95)
    assert made == pytest.approx(0.95, abs=0.006)
    with pytest.raises(InputError, match="between 0 and 1"):
        simultaneous_level(same, np.ones(40, dtype=bool), 1.0)


def test_variances_alone_are_those_of_independent_numbers() -> None:
    known = np.arange(50) < 30
    made = [simultaneous_level(of_sampling(each), known, 0.95)
            for each in (np.ones(50), np.eye(50))]  # fmt: skip
    for level in made:
        assert (1 - level) / (1 - 0.95 ** (1 / 30)) == pytest.approx(1.0, abs=0.12)


def test_few_draws_need_wider_intervals_than_their_degrees_of_freedom_say() -> None:
    """Reiter's t is an approximation, and far out in its tails it is a poor one."""
    size, known = 40, np.ones(40, dtype=bool)
    law = JointLaw(np.eye(size), 3 * np.eye(size), 3, 1e9)
    made = simultaneous_level(law, known, 0.95)
    rng, worst = np.random.default_rng(1), []
    for _ in range(4000):  # written out table by table
        draws = rng.normal(0, np.sqrt(3), (3, size))
        b = draws.var(axis=0, ddof=1) / 3
        t = np.abs(rng.normal(size=size) + draws.mean(axis=0)) / np.sqrt(1 + b)
        worst.append((2 * stats.t.cdf(t, 2 * (1 + 1 / b) ** 2) - 1).max())
    assert np.mean(np.array(worst) <= made) == pytest.approx(0.95, abs=0.012)
    assert np.mean(np.array(worst) <= 1 - 0.05 / size) < 0.93  # Bonferroni


# Repeated samples


N, SD, NOISE = 800, 1.0, 12.0
MEAN = np.random.default_rng(8).normal(2.0, 1.0, 20)
SHARE = np.random.default_rng(9).dirichlet(np.full(20, 30.0))


def truth(rows: Domains) -> FloatArray:
    """Population means of all rows, the cells being as large as ``SHARE`` says."""
    cell = np.arange(20)
    a, b = np.array(A)[cell // 5], np.array(B)[cell % 5]
    found = []
    for of_a, of_b in zip(rows.table["a"], rows.table["b"], strict=True):
        held = ((a == of_a) | (of_a == "All")) & ((b == of_b) | (of_b == "All"))
        found.append(np.average(MEAN[held], weights=SHARE[held]))
    return np.array(found)


def released(
    rng: np.random.Generator, noise: float, m: int
) -> tuple[Domains, SampleDesign, CombiningRule, list[FloatArray]]:
    """A new sample, the rule of its release, and the outcomes of m datasets."""
    cell = np.sort(rng.choice(20, N, p=SHARE))
    sums = np.bincount(cell, rng.normal(MEAN[cell], SD), minlength=20)
    size = np.bincount(cell, minlength=20)
    noisy = sums + noise * rng.normal(size=20)
    sd = np.sqrt(SD**2 * size + noise**2) / size
    draws = rng.normal(noisy / size, sd, (m, 20))
    rule: CombiningRule = TotalVariance(cell) if noise else PartialSynthesis()
    design = SampleDesign(np.zeros(N, dtype=np.int64))
    return table_rows(cell), design, rule, [rng.normal(each[cell], SD) for each in draws]


def errors_of_samples(
    noise: float, m: int, count: int
) -> Iterator[tuple[FloatArray, FloatArray, float]]:
    """Yield levels of the intervals that just reach the truth, df, and the level that is taken."""
    rng = np.random.default_rng(5)
    for _ in range(count):
        rows, design, rule, outcomes = released(rng, noise, m)
        estimates = Estimates(
            rows, design, [("mean", 0)], linearisation="plain", population_size=None, draws=m,
            rule=rule, joint=True,
        )  # fmt: skip
        for draw, y in enumerate(outcomes, start=1):
            values, weight = y[:, None], np.ones(N)
            estimates.add(SyntheticDataset(draw, 1, values, weight, values, weight))
        made = estimates.combined(("mean", 0))
        known = np.ones(rows.n_rows, dtype=bool)
        level = simultaneous_level(estimates.law(("mean", 0), made), known, 0.95)
        lower, upper = t_interval(made, level)
        assert (upper - lower > 0).all()
        t = np.abs(made.estimate - truth(rows)) / made.standard_error
        yield 2 * stats.t.cdf(t, made.df) - 1, made.df, level


@pytest.mark.parametrize(
    ("noise", "m", "count", "wrongs"), [(0.0, 3, 160, (1, 2, 9)), (NOISE, 15, 50, (1, 2))],
    ids=["partial", "posterior"],
)  # fmt: skip
def test_all_rows_hold_at_once_as_often_as_stated(
    noise: float, m: int, count: int, wrongs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint, "SIMULATED", 1000)
    worst, levels, single = [], [], []
    for of_row, _, level in errors_of_samples(noise, m, count):
        worst.append(of_row.max())
        levels.append(level)
        single.append((of_row <= 0.95).mean())
    largest = np.array(worst)
    held = float((largest <= np.array(levels)).mean())
    error = np.sqrt(0.05 * 0.95 / count)
    assert abs(held - 0.95) < 3 * error, held
    assert np.mean(single) == pytest.approx(0.95, abs=0.03)  # the errors themselves are right
    # Planted: intervals of one row each, Bonferroni for the two by variables, for their nine
    # levels.
    for wrong in wrongs:
        share = float((largest <= 1 - 0.05 / wrong).mean())
        assert share < 0.95 - 3 * error, wrong


def test_a_table_of_many_numbers_has_independent_rows() -> None:
    cell = np.arange(joint.MOST_NUMBERS + 50).repeat(2)
    frame = pd.DataFrame({"a": cell.astype(str)})
    rows = build_domains(frame, ["a"], {"a": tuple(dict.fromkeys(frame["a"]))})
    design = SampleDesign(np.zeros(cell.size, dtype=np.int64))
    estimates = Estimates(
        rows, design, [("count", None)], linearisation="plain", population_size=None, joint=True
    )
    estimates.add_alone(np.zeros((cell.size, 1)), np.ones(cell.size))
    made = estimates.combined(("count", None))
    law = estimates.law(("count", None), made)
    np.testing.assert_allclose(law.sampling, made.within, rtol=1e-9)
