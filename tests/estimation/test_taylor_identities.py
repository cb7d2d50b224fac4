"""Identities that hold for any sample: no figure of another program is needed.

A domain mean is a ratio of totals and a coefficient of a weighted regression on dummies, with the
sandwich variance; margins are sums of cells; results do not depend on the order of the records,
nor the variance of a mean on where the outcome has its zero.
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
        "c": RNG.choice(["x", "y"], N),
    }
)
LEVELS = {"a": ["1", "2", "3"], "b": ["u", "v"], "c": ["x", "y"]}
WEIGHT = RNG.lognormal(2, 0.7, N)
OUTCOME = RNG.lognormal(10, 0.5, N)
DESIGNS = {
    "one stage": SampleDesign(STRATA),
    "clusters": SampleDesign(STRATA, PSU),
    "clusters with fpc": SampleDesign(STRATA, PSU, np.linspace(0, 0.5, 6)),
}
each_design = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
each_statistic = pytest.mark.parametrize("statistic", ["count", "total", "mean"])
each_linearisation = pytest.mark.parametrize("linearisation", ["plain", "ratio"])


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


@each_design
def test_mean_is_ratio_of_total_to_count(design: SampleDesign) -> None:
    ratio = estimates(design, "total").estimate / estimates(design, "count").estimate
    np.testing.assert_allclose(estimates(design, "mean").estimate, ratio, rtol=1e-14)


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


@each_linearisation
@pytest.mark.parametrize("statistic", ["count", "total"])
def test_margins_are_sums_of_cells(statistic: Statistic, linearisation: Linearisation) -> None:
    by = ("a", "b", "c")
    got = estimates(DESIGNS["clusters"], statistic, linearisation, by=by, population_size=1e5)
    cube = got.estimate.reshape(4, 3, 3)
    for axis in range(3):
        margin, levels = np.split(np.moveaxis(cube, axis, 0), [1])
        np.testing.assert_allclose(margin[0], levels.sum(axis=0), rtol=1e-12)


@each_design
@each_statistic
@each_linearisation
def test_order_of_records_does_not_matter(
    design: SampleDesign, statistic: Statistic, linearisation: Linearisation
) -> None:
    order = np.random.default_rng(8).permutation(N)
    psu = None if design.psu is None else design.psu[order]
    shuffled = estimate_domains(
        build_domains(FRAME.iloc[order], ["a", "b"], LEVELS),
        SampleDesign(design.strata[order], psu, design.fpc),
        weight=WEIGHT[order],
        outcome=OUTCOME[order],
        statistic=statistic,
        linearisation=linearisation,
    )
    got = estimates(design, statistic, linearisation)
    np.testing.assert_allclose(shuffled.estimate, got.estimate, rtol=1e-12)
    np.testing.assert_allclose(shuffled.variance, got.variance, rtol=1e-12)


@each_design
@pytest.mark.parametrize("constant", [1.0, -1e9])
def test_variance_of_a_mean_ignores_an_added_constant(
    design: SampleDesign, constant: float
) -> None:
    got = estimates(design, "mean")
    moved = estimates(design, "mean", outcome=OUTCOME + constant)
    np.testing.assert_allclose(moved.estimate, got.estimate + constant, rtol=1e-12)
    np.testing.assert_allclose(moved.variance, got.variance, rtol=1e-9)


@each_design
def test_linearisations_agree_for_means_and_differ_for_counts(design: SampleDesign) -> None:
    plain, ratio = (estimates(design, "mean", way) for way in ("plain", "ratio"))
    np.testing.assert_allclose(plain.estimate, ratio.estimate, rtol=1e-14)
    np.testing.assert_allclose(plain.variance, ratio.variance, rtol=1e-14)
    plain, ratio = (estimates(design, "count", way) for way in ("plain", "ratio"))
    np.testing.assert_allclose(plain.estimate, ratio.estimate, rtol=1e-14)
    assert (np.abs(plain.variance - ratio.variance) > 0.01 * plain.variance).mean() > 0.8


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


@each_design
def test_calibrated_counts_of_two_halves_have_the_same_error(design: SampleDesign) -> None:
    """What one side gains the other loses, since they add up to the public N."""
    got = estimates(design, "count", "ratio", by=("b",), population_size=1e5)
    assert got.variance[1] == pytest.approx(got.variance[2], rel=1e-12)
    plain = estimates(design, "count", "plain", by=("b",))
    assert abs(plain.variance[1] / plain.variance[2] - 1) > 0.01


@each_design
@each_statistic
def test_records_as_their_own_psus_are_the_one_stage_design(
    design: SampleDesign, statistic: Statistic
) -> None:
    alone = SampleDesign(design.strata, np.arange(N)[::-1].copy(), design.fpc)
    one_stage = SampleDesign(design.strata, None, design.fpc)
    for way in ("plain", "ratio"):
        np.testing.assert_allclose(
            estimates(alone, statistic, way).variance,  # type: ignore[arg-type]
            estimates(one_stage, statistic, way).variance,  # type: ignore[arg-type]
            rtol=1e-12,
        )


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
