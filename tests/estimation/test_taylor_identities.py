"""Identities that hold for any sample: no figure of another program is needed.

A domain mean is a coefficient of a weighted regression on dummies, with the sandwich variance,
which does not depend on where the outcome has its zero; a known whole has no error; records are
PSUs of one record. What follows from the formula alone is left to ``test_taylor_reference.py``.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from surveysynth._support.types import FloatArray
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import Statistic
from surveysynth.estimation.taylor import DomainEstimates, Linearisation, estimate_domains

N = 400
RNG = np.random.default_rng(3)
STRATA = np.sort(RNG.integers(0, 6, N))
PSU, _ = pd.factorize(STRATA * 10 + RNG.integers(0, 5, N))
FRAME = pd.DataFrame(
    {
        "a": RNG.choice(["1", "2", "3"], N),
        "b": RNG.choice(["u", "v"], N),
    }
)
LEVELS = {"a": ["1", "2", "3"], "b": ["u", "v"]}
WEIGHT = RNG.lognormal(2, 0.7, N)
OUTCOME = RNG.lognormal(10, 0.5, N)
DESIGNS = {
    "one stage": SampleDesign(STRATA),
    "clusters": SampleDesign(STRATA, PSU),
    "clusters with fpc": SampleDesign(STRATA, PSU, np.linspace(0, 0.5, 6)),
}
each_design = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
def estimates(
    design: SampleDesign,
    statistic: Statistic,
    linearisation: Linearisation = "plain",
    *,
    by: tuple[str, ...] = ("a", "b"),
    weight: FloatArray = WEIGHT,
    outcome: FloatArray = OUTCOME,
    population_size: float | None = None,
) -> DomainEstimates:
    return estimate_domains(
        build_domains(FRAME, by, LEVELS),
        design,
        weight=weight,
        outcome=outcome,
        statistic=statistic,
        linearisation=linearisation,
        population_size=population_size,
    )


def interior(domains: Domains) -> FloatArray:
    """Dummies of the interior cells, shape (n, number of cells)."""
    rows = domains.codes[-1]
    return (rows[:, np.newaxis] == np.unique(rows)).astype(float)


@pytest.mark.parametrize("clustered", [False, True])
def test_mean_is_a_weighted_regression_on_dummies(clustered: bool) -> None:
    """Point estimates and, without strata, the sandwich variances of the coefficients."""
    psu = PSU if clustered else None
    design = SampleDesign(np.zeros(N, dtype=np.int64), psu)
    domains = build_domains(FRAME, ["a", "b"], LEVELS)
    cells = np.unique(domains.codes[-1])
    groups = PSU if clustered else np.arange(N)
    n_psus = len(np.unique(groups))
    fit = sm.WLS(OUTCOME, interior(domains), weights=WEIGHT).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    got = estimates(design, "mean")
    np.testing.assert_allclose(got.estimate[cells], fit.params, rtol=1e-12)
    sandwich = np.diag(fit.cov_params()) * n_psus / (n_psus - 1)
    np.testing.assert_allclose(got.variance[cells], sandwich, rtol=1e-10)


@each_design
def test_variance_of_a_mean_ignores_an_added_constant(design: SampleDesign) -> None:
    constant = -1e9
    got = estimates(design, "mean")
    moved = estimates(design, "mean", outcome=OUTCOME + constant)
    np.testing.assert_allclose(moved.estimate, got.estimate + constant, rtol=1e-12)
    np.testing.assert_allclose(moved.variance, got.variance, rtol=1e-9)


@each_design
def test_known_population_size_has_no_error_and_scales_the_rest(design: SampleDesign) -> None:
    got = estimates(design, "count", "ratio", population_size=1e6)
    assert got.variance[0] == 0
    assert got.estimate[0] == pytest.approx(1e6, rel=1e-13)
    unscaled = estimates(design, "count", "ratio")
    scale = 1e6 / WEIGHT.sum()
    np.testing.assert_allclose(got.estimate, scale * unscaled.estimate, rtol=1e-12)
    np.testing.assert_allclose(got.variance, scale**2 * unscaled.variance, rtol=1e-12)


@each_design
def test_calibrated_total_of_the_whole_is_n_times_the_mean(design: SampleDesign) -> None:
    total = estimates(design, "total", "ratio", population_size=5000.0)
    mean = estimates(design, "mean")
    assert total.variance[0] == pytest.approx(5000.0**2 * mean.variance[0], rel=1e-12)


@pytest.mark.parametrize(
    "outcome",
    [np.greater(OUTCOME, np.median(OUTCOME)).astype(float), OUTCOME / OUTCOME.max()],
    ids=["observed", "synthetic"],
)
def test_proportion_is_the_mean(outcome: FloatArray) -> None:
    proportion = estimates(DESIGNS["clusters"], "proportion", outcome=outcome)
    mean = estimates(DESIGNS["clusters"], "mean", outcome=outcome)
    assert (proportion.estimate == mean.estimate).all()
    assert (proportion.variance == mean.variance).all()


def test_without_by_variables_there_is_the_whole_alone() -> None:
    whole = estimates(DESIGNS["clusters"], "mean", by=())
    assert whole.estimate == pytest.approx([np.average(OUTCOME, weights=WEIGHT)])
    assert whole.variance == pytest.approx(estimates(DESIGNS["clusters"], "mean").variance[:1])


def test_rows_of_weight_zero_have_no_mean_and_raise_no_warning() -> None:
    weight = np.where(FRAME["a"] == "1", 0.0, WEIGHT)
    domains = build_domains(FRAME, ["a", "b"], LEVELS)
    empty = (domains.table["a"] == "1").to_numpy()
    mean = estimates(DESIGNS["clusters"], "mean", weight=weight)
    assert (np.isnan(mean.estimate) == empty).all()
    assert (np.isnan(mean.variance) == empty).all()
    count = estimates(DESIGNS["clusters"], "count", "ratio", weight=weight)
    assert (count.estimate[empty] == 0).all()
    assert (count.variance[empty] == 0).all()


@pytest.mark.parametrize("origin", [0.0, 1e7])
@pytest.mark.parametrize("statistic", ["count", "total", "mean"])
@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
def test_records_are_psus_of_one_record(
    statistic: Statistic, linearisation: Linearisation, origin: float
) -> None:
    """Moments of cells against records one by one, also far from zero, with zeros among weights."""
    weight = np.where(RNG.random(N) < 0.1, 0.0, WEIGHT)
    weight[(FRAME["a"] == "2") & (FRAME["b"] == "u") & (STRATA == 2)] = 0.0
    strata, fpc = np.minimum(STRATA, 4), np.linspace(0.0, 0.5, 6)
    strata[STRATA == 5] = np.where(np.arange((STRATA == 5).sum()) == 0, 5, 4)  # a lonely record
    for adjust in ("remove", "adjust", "average"):
        by_moments, one_by_one = (
            estimates(
                SampleDesign(strata, psu, fpc, lonely_psu=adjust), statistic, linearisation,
                weight=weight, outcome=OUTCOME + origin,
            )
            for psu in (None, np.arange(N))
        )  # fmt: skip
        np.testing.assert_allclose(by_moments.estimate, one_by_one.estimate, rtol=1e-12)
        np.testing.assert_allclose(
            by_moments.variance, one_by_one.variance, rtol=1e-7 if origin else 1e-10,
            atol=1e-12 * one_by_one.variance.max(),
        )  # fmt: skip


def test_rows_that_are_kept_serve_every_design() -> None:
    """Variances of one layout by three designs in turn are those of a layout of their own."""
    shared = build_domains(FRAME, ("a", "b"), LEVELS)
    for design in (*DESIGNS.values(), *DESIGNS.values()):
        for domains in (shared, build_domains(FRAME, ("a", "b"), LEVELS)):
            made = estimate_domains(
                domains, design, weight=WEIGHT, outcome=OUTCOME, statistic="mean",
                linearisation="plain",
            )  # fmt: skip
            if domains is shared:
                first = made.variance
        np.testing.assert_array_equal(first, made.variance)
    assert len(shared.pairs) == 4 * len({id(each.psu) for each in DESIGNS.values()})
