"""How public powers fit. Truth: SciPy's likelihood of Yeo and Johnson's transform, statsmodels'
weighted least squares, log-normal means in closed form, simulated data of a known power."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surveysynth._support.templates import render
from surveysynth.estimation.domains import build_domains
from surveysynth.evaluation.compare.power_fit import (
    LEAST_IN_CELL,
    POWER_WARNING,
    Amounts,
    candidates,
    fitted,
    implied_means,
    normal_means,
    power_fits,
    power_tables,
)
from surveysynth.release.tables.labels import Labels
from surveysynth.spec.spec import load_spec
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, Survey
from surveysynth.survey.transforms import Transform
from tests.surveys import make_survey, small_survey, spec_text, write_survey


def amounts_of(values: np.ndarray, weight: np.ndarray, group: np.ndarray) -> Amounts:
    """Records of two groups, X an intercept and the second group."""
    frame = pd.DataFrame({"g": np.array(["a", "b"])[group]})
    domains = build_domains(frame, ["g"], {"g": ("a", "b")})
    x_cells = np.array([[1.0, 0.0], [1.0, 1.0]])
    return Amounts(values, weight, group, x_cells, domains)


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
def test_the_likelihood_is_that_of_scipy(power: float) -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_t(5, 500) * 700
    n, group = values.size, np.zeros(500, dtype=np.int64)
    made = amounts_of(values, np.ones(n), group)
    fit = fitted(made, Transform("yeo_johnson", scale=400.0, power=power))
    # SciPy's is maximised over mean and variance, without constants and in units of the scale.
    expected = stats.yeojohnson_llf(power, values / 400.0) / n
    expected -= 0.5 * np.log(2 * np.pi) + 0.5 + np.log(400.0)
    assert fit.log_lik == pytest.approx(expected, rel=1e-10)
    residual = stats.yeojohnson(values / 400.0, power)
    assert fit.skewness == pytest.approx(stats.skew(residual), rel=1e-8)
    assert fit.kurtosis == pytest.approx(stats.kurtosis(residual), rel=1e-8)


def test_a_weighted_regression_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(4)
    group = rng.integers(0, 2, 300)
    values, weight = np.exp(rng.normal(9 + group, 0.5)), rng.uniform(1, 5, 300)
    weight[:40] = 0.0  # at a spike, where the log does not exist
    values[:40] = 0.0
    made = amounts_of(values, weight, group)
    fit = fitted(made, Transform("log"))
    z, x = np.log(values[40:]), sm.add_constant(group[40:].astype(float))
    reference = sm.WLS(z, x, weight[40:]).fit()
    np.testing.assert_allclose(fit.centre, reference.params @ [[1, 1], [0, 1]], rtol=1e-10)
    spread = np.sqrt(np.average(reference.resid**2, weights=weight[40:]))
    assert fit.spread == pytest.approx(spread)
    by_record = stats.lognorm.logpdf(values[40:], spread, scale=np.exp(reference.fittedvalues))
    assert fit.log_lik == pytest.approx(np.average(by_record, weights=weight[40:]))
    one, by_cell = implied_means(made, Transform("log"), fit)
    closed = np.exp(fit.centre + 0.5 * fit.spread**2)
    np.testing.assert_allclose(one[1:], closed, rtol=1e-10)
    share = np.bincount(group, weight)
    assert one[0] == pytest.approx(np.average(closed, weights=share))
    own = [
        np.sqrt(np.average(reference.resid[inside] ** 2, weights=weight[40:][inside]))
        for inside in (group[40:] == 0, group[40:] == 1)
    ]
    np.testing.assert_allclose(by_cell[1:], np.exp(fit.centre + 0.5 * np.square(own)), rtol=1e-10)
    # A cell with few records takes the common spread.
    few = replace(made, weight=np.where((group == 1) & (np.cumsum(group) > 45), 0.0, weight))
    small = fitted(few, Transform("log"))
    assert small.spreads[2] == small.spread != small.spreads[1]


def test_means_under_a_normal_are_those_of_simulation() -> None:
    rng = np.random.default_rng(5)
    for transform in (Transform("yeo_johnson", 1000.0, power=0.4), Transform("asinh", 50.0)):
        z = rng.normal(1.0, 1.2, 400_000)
        values = transform.inverse(z)
        (made,) = normal_means(transform, np.array([1.0]), np.array([1.2]))
        assert abs(made - values.mean()) < 4 * values.std() / np.sqrt(values.size)


@given(
    st.sampled_from([Transform("log", shift=3.0), Transform("identity", 7.0),
                     Transform("asinh", 20.0), Transform("yeo_johnson", 20.0, power=0.3),
                     Transform("yeo_johnson", 20.0, power=1.6)]),
    st.floats(-2.5, 500.0),
)  # fmt: skip
def test_slopes_are_differences_of_the_transform(transform: Transform, value: float) -> None:
    step = 1e-4
    ends = transform.forward(np.array([value - step, value + step]))
    slope = np.exp(transform.log_slope(np.array([value])))[0]
    assert (ends[1] - ends[0]) / (2 * step) == pytest.approx(slope, rel=1e-5)


def simulated(tmp_path: Path, transform: Transform, zeros: float = 0.0) -> pd.DataFrame:
    """The fits to 3,000 records whose power is known: normal on that scale by field."""
    frame = small_survey(3000, seed=9)
    rng = np.random.default_rng(10)
    field = frame["field"].map({"a": 0, "b": 1, "c": 2}).to_numpy()
    sigma = 0.7 if transform.kind == "log" else 1.1
    centre = (10.0 if transform.kind == "log" else 3.0) + 0.2 * field
    values = transform.inverse(rng.normal(centre, sigma))
    frame["salary"] = values
    text = spec_text(synthesizer='predictors = "field + gender"')
    path = write_survey(tmp_path / "in", frame, text)
    values[: int(zeros * 3000)] = 0.0
    survey = make_survey(frame, transforms=transform, predictors="field + gender")
    kind = "semicontinuous" if zeros else "continuous"
    outcome = Outcome("salary", kind, transform, spikes=(0.0,) if zeros else ())  # type: ignore[arg-type]
    survey = Survey(
        replace(survey.design, outcomes=(outcome,)),
        Confidential(values[:, None], survey.confidential.sampling_weight),
    )
    return power_fits(load_spec(path), survey)


@pytest.mark.parametrize("zeros", [0.0, 0.4])
@pytest.mark.parametrize(
    ("transform", "best"),
    [(Transform("log"), 0.0), (Transform("yeo_johnson", 10_000.0, power=0.5), 0.5)],
    ids=["log", "power 0.5"],
)
def test_the_power_that_made_the_data_is_found(
    tmp_path: Path, transform: Transform, best: float, zeros: float
) -> None:
    table = simulated(tmp_path, transform, zeros)
    powers = table[table["transform"].str.startswith("yeo")].reset_index(drop=True)
    assert len(powers) == 11
    assert abs(powers["log_lik"].idxmax() / 10 - best) <= 0.1
    right, wrong = powers.loc[round(10 * best)], powers.loc[10]
    assert abs(right["skewness"]) < 0.25
    assert abs(right["kurtosis"]) < 0.5
    assert wrong["skewness"] > abs(right["skewness"]) + 0.5
    assert right["log_lik"] > wrong["log_lik"] + 0.02
    assert right["median"] < 1.5
    assert right["largest"] < 3
    (declared,) = table["transform"][table["declared"]]
    assert declared == transform.describe("salary")


def test_a_lump_spoils_the_log_and_the_table_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    frame = small_survey(2000)
    lump = rng.random(2000) < 0.3
    frame["salary"] = np.where(lump, rng.uniform(0.5, 1.5, 2000), frame["salary"])
    spec = load_spec(write_survey(tmp_path / "in", frame, spec_text()))
    table = power_fits(spec, make_survey(frame)).set_index("transform")
    log = table.loc["log(salary)"]
    assert log["median"] > 10
    assert log["skewness"] < -0.5
    assert table.loc["yeo_johnson(salary, power 1)", "median"] < 1


def test_sides_of_a_split_are_fitted_apart_and_alike(tmp_path: Path) -> None:
    """Losses are gains of the same law in the mirror: as many, the two tables are one."""
    frame = small_survey(1000, seed=9)
    both = pd.concat([frame, frame], ignore_index=True)
    size = np.tile(Transform("yeo_johnson", 1e3, power=0.4).inverse(
        np.random.default_rng(3).normal(4.0, 0.8, 1000)), 2)  # fmt: skip
    values = 50.0 + np.where(np.arange(2000) < 1000, size, -size)
    outcome = Outcome("salary", "semicontinuous", Transform("yeo_johnson", 1e3, power=0.4),
                      split=50.0)  # fmt: skip
    survey = make_survey(both)
    survey = Survey(
        replace(survey.design, outcomes=(outcome,)),
        Confidential(values[:, None], survey.confidential.sampling_weight),
    )
    table = power_fits(load_spec(write_survey(tmp_path / "in", both, spec_text())), survey)
    sides = [own.reset_index(drop=True) for _, own in table.groupby("side", sort=False)]
    assert [own["side"][0] for own in sides] == ["50 or above", "below 50"]
    assert sides[0]["transform"][4] == "yeo_johnson((salary - 50)/1000, power 0.4)"
    numbers = ["log_lik", "skewness", "kurtosis", "median", "largest", "median_by_cell"]
    np.testing.assert_allclose(sides[0][numbers], sides[1][numbers], rtol=1e-8)
    assert abs(sides[0]["log_lik"].idxmax() - 4) <= 1
    assert "below 50</span></caption>" in power_section(table).replace("</strong>", "")


def power_section(table: pd.DataFrame) -> str:
    """Render the section of a page about these fits."""
    return render(
        "surveysynth.evaluation", "templates/powers.html.j2",
        powers=power_tables(table, Labels()), power_warning=POWER_WARNING,
        least_in_cell=LEAST_IN_CELL,
    )  # fmt: skip


def test_every_power_is_tried_with_the_declared_scale() -> None:
    tried = list(candidates(Transform("asinh", 250.0)))
    assert tried[0] == Transform("asinh", 250.0)
    assert [each.power for each in tried[1:]] == [k / 10 for k in range(11)]
    assert {each.scale for each in tried} == {250.0}
    assert len(list(candidates(Transform("yeo_johnson", 9.0, power=0.7)))) == 11


def test_the_section_warns_and_marks_what_is_declared(tmp_path: Path) -> None:
    table = simulated(tmp_path, Transform("log"))
    page = power_section(table)
    assert POWER_WARNING in page
    assert page.count("(declared)") == 1
    assert page.count("<tr") == 13
    assert power_section(table.iloc[:0]).strip() == ""


def test_levels_have_no_power(tmp_path: Path) -> None:
    frame = small_survey(400)
    survey = make_survey(frame)
    binary = replace(survey.design, outcomes=(Outcome("salary", "binary"),))
    values = frame[["employed"]].to_numpy(dtype=np.float64)
    only = Survey(binary, Confidential(values, survey.confidential.sampling_weight))
    spec = load_spec(write_survey(tmp_path / "in", frame, spec_text()))
    assert power_fits(spec, only).empty
