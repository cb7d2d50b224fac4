"""Ratios of outcomes, contrasts of rows, shares of rows: of a sample, and of several datasets.

Truth: R's survey package (svyratio, svycontrast of svytotal and of svyby(covmat = TRUE);
tests/golden/statistics_survey.R wrote the figures); the linearised variable written out for every
record; replicates; the same rows made by hand as domains of their own.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.estimation.combining import PartialSynthesis, interval_of
from surveysynth.estimation.domains import ByOutcome, build_domains, build_rows
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.linearised import Contrast, Pairs
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.taylor import DomainEstimates, estimate_domains
from surveysynth.estimation.total_variance import TotalVariance, public_rows
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.outcome import Outcome
from tests.estimation.replicates import jackknife, replicated
from tests.estimation.test_taylor_golden import FRAME, GOLDEN, LEVELS, sample_design

RESULTS: dict[str, Any] = json.loads((Path(GOLDEN) / "statistics_survey.json").read_text())
DOMAINS = build_domains(FRAME, ["a", "b"], LEVELS)
Y, WEIGHT = FRAME["y"].to_numpy(), FRAME["weight"].to_numpy()
X = np.sqrt(Y) * WEIGHT
CONTRASTS = list(RESULTS["cases"][0]["plain"]["contrasts"])
CASES = pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])


def of_sample(case: dict[str, Any], statistic: str, linearisation: Any) -> DomainEstimates:
    both = "ratio(y, x)" in statistic
    return estimate_domains(
        DOMAINS, sample_design(case), weight=WEIGHT, outcome=np.stack([Y, X], 1) if both else Y,
        statistic=statistic, linearisation=linearisation, population_size=RESULTS["population"],
    )  # fmt: skip


def assert_equals(made: DomainEstimates, expected: dict[str, Any]) -> None:
    estimate, se = (np.array(expected[name], dtype=float) for name in ("estimate", "se"))
    known = np.isfinite(estimate)
    assert known.sum() >= 2
    scale = np.nanmax(np.abs(estimate))
    np.testing.assert_allclose(made.estimate[known], estimate[known], 1e-8, atol=1e-12 * scale)
    found = np.sqrt(made.variance)
    # A row that is all of its margin has no error; R leaves rounding.
    se[se < 1e-8 * np.abs(estimate)] = 0.0
    found[found < 1e-10 * np.abs(made.estimate)] = 0.0
    np.testing.assert_allclose(found[known], se[known], rtol=1e-8)


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("statistic", CONTRASTS)
@CASES
def test_contrasts_equal_r_survey(
    case: dict[str, Any], statistic: str, linearisation: str
) -> None:
    made = of_sample(case, statistic, linearisation)
    assert_equals(made, case[linearisation]["contrasts"][statistic])
    pairs = Pairs.of(statistic_of(statistic).contrast, DOMAINS)  # type: ignore[arg-type]
    assert np.isnan(made.estimate[~pairs.holds]).all()
    assert np.isnan(made.variance[~pairs.holds]).all()


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@CASES
def test_ratios_equal_r_survey(case: dict[str, Any], linearisation: str) -> None:
    assert_equals(of_sample(case, "ratio(y, x)", linearisation), case[linearisation]["ratio(y, x)"])


@CASES
def test_covariances_are_those_of_svyby(case: dict[str, Any]) -> None:
    made = of_sample(case, "difference(mean, a: a1 - a2)", "plain")
    row = 4  # a1, b1
    assert tuple(DOMAINS.table.loc[row, ["a", "b"]]) == ("a1", "b1")
    expected = case["plain"]["svyby"]
    assert made.estimate[row] == pytest.approx(expected["estimate"], rel=1e-8)
    assert made.variance[row] == pytest.approx(expected["se"] ** 2, rel=1e-8)


def test_rows_taken_as_independent_are_found_out() -> None:
    case = RESULTS["cases"][2]  # clusters that are in both rows
    for statistic, base in (("difference(mean, b: b1 - b2)", "mean"),
                            ("difference(mean, b: margin)", "mean")):  # fmt: skip
        made, rows = of_sample(case, statistic, "plain"), of_sample(case, base, "plain")
        pairs = Pairs.of(statistic_of(statistic).contrast, DOMAINS)  # type: ignore[arg-type]
        independent = rows.variance + rows.variance[pairs.second]
        several = pairs.holds & np.isfinite(made.variance)
        off = np.abs(np.sqrt(independent[several] / made.variance[several]) - 1)
        assert np.median(off) > 0.05


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("statistic", [*CONTRASTS, "difference(median, b: b1 - b2)"])
def test_linearised_variables_written_out_have_the_same_variance(
    statistic: str, linearisation: Any
) -> None:
    """u of every record from those of both rows, by a design without strata or units."""
    kind = statistic_of(statistic)
    assert kind.contrast is not None
    design = SampleDesign(np.zeros(len(FRAME), dtype=np.int64))
    outcome = np.stack([Y, X], 1) if kind.of else np.ones(len(Y)) if not kind.needs_outcome else Y
    made = estimate_domains(
        DOMAINS, design, weight=WEIGHT, outcome=outcome, statistic=statistic,
        linearisation=linearisation,
    )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):  # rows without records
        base = statistic_of(kind.base).linearise(
            DOMAINS, WEIGHT, outcome, calibrated=linearisation == "ratio"
        )

    def u_of(row: int) -> Any:
        inside = (DOMAINS.codes == row).any(axis=0)
        rest = 0.0 if base.outside is None else -base.outside[row] * WEIGHT
        with np.errstate(invalid="ignore"):
            return np.where(inside, base.inside(np.full(len(Y), row)), rest)

    pairs = Pairs.of(kind.contrast, DOMAINS)
    several = np.flatnonzero(pairs.fewer(DOMAINS.n) >= 2)
    assert several.size >= 3
    for row in several:
        first, second = base.estimate[row], base.estimate[pairs.second[row]]
        u = u_of(row) - u_of(pairs.second[row])
        if kind.contrast.kind == "ratio":
            u = (u_of(row) - first / second * u_of(pairs.second[row])) / second
        n = len(u)
        expected = n * u.var(ddof=1)
        largest = max(expected, 1e-12 * first**2)
        assert made.variance[row] == pytest.approx(expected, rel=1e-9, abs=1e-9 * largest)


@pytest.mark.parametrize("statistic", ["difference(total, b: b1 - b2)", "ratio(y, x)",
                                       "ratio(mean, b: margin)"])  # fmt: skip
def test_replicates_are_contrasts_of_their_rows(statistic: str) -> None:
    case = RESULTS["cases"][2]
    outcome = np.stack([Y, X], 1) if statistic == "ratio(y, x)" else Y
    replicates = jackknife(sample_design(case), WEIGHT)
    given: dict[str, Any] = {"outcome": outcome, "linearisation": "plain"}
    made, each = replicated(DOMAINS, replicates, weight=WEIGHT, statistic=statistic, **given)
    for replicate in (0, 7, 20):
        again = estimate_domains(
            DOMAINS, sample_design(case), statistic=statistic,
            weight=replicates.weights[:, replicate], **given,
        )  # fmt: skip
        known = np.isfinite(again.estimate) & np.isfinite(each[replicate])
        assert known.sum() >= 4
        np.testing.assert_allclose(each[replicate][known], again.estimate[known], rtol=1e-9)
    taylor = of_sample(case, statistic, "plain")
    known = np.isfinite(taylor.estimate)  # both rows have records
    np.testing.assert_array_equal(np.isfinite(made.estimate), known)
    if statistic.startswith("difference"):  # linear: the jackknife is exact
        np.testing.assert_allclose(made.variance, taylor.variance, rtol=1e-9)
    else:
        assert abs(np.sqrt(made.variance[1] / taylor.variance[1]) - 1) < 0.2


def datasets(m: int, r: int) -> list[SyntheticDataset]:
    rng, made = np.random.default_rng(8), []
    for draw in range(1, m + 1):
        for replicate in range(1, r + 1):
            y = Y * rng.lognormal(0.05 * draw, 0.1, Y.size)
            k = rng.integers(0, 2, Y.size).astype(float)
            outcome = np.stack([y, k], axis=1)
            w = WEIGHT * rng.lognormal(0.0, 0.05, Y.size)
            made.append(SyntheticDataset(draw, replicate, outcome, w, outcome, w))
    return made


PUBLIC = public_rows(*(pd.factorize(FRAME[column])[0] for column in ("a", "b", "stratum", "psu")))


@pytest.mark.parametrize("rule", [PartialSynthesis(), TotalVariance(PUBLIC)],
                         ids=["partial synthesis", "total variance"])  # fmt: skip
def test_a_sum_over_two_rows_is_a_domain_of_its_own_with_signed_values(rule: Any) -> None:
    """A difference of totals is the total of values with the sign of their row: no code of
    contrasts, by either combining rule."""
    statistic, design = "difference(total, a: a1 - a2)", sample_design(RESULTS["cases"][2])
    sign = np.select([FRAME["a"] == "a1", FRAME["a"] == "a2"], [1.0, -1.0], 0.0)
    made, signed = (
        Estimates(
            rows, design, [(name, 0)], linearisation="plain", population_size=None, draws=3,
            replicates=2, rule=rule,
        )
        for rows, name in ((DOMAINS, statistic), (build_domains(FRAME, ["b"], LEVELS), "total"))
    )  # fmt: skip
    for each in datasets(3, 2):
        made.add(each)
        y = each.outcome * sign[:, None]
        signed.add(SyntheticDataset(each.draw, each.replicate, y, each.weight, y, each.weight))
    one, other = made.combined((statistic, 0)), signed.combined(("total", 0))
    at = [3, 4, 5]  # a1 in all of b, b1 and b2
    for name in ("estimate", "standard_error", "df", "between", "within"):
        np.testing.assert_allclose(getattr(one, name)[at], getattr(other, name), rtol=1e-10)


@pytest.mark.parametrize("rule", [PartialSynthesis(), TotalVariance(PUBLIC)],
                         ids=["partial synthesis", "total variance"])  # fmt: skip
@pytest.mark.parametrize("column", ["a", "k"])
def test_rows_by_an_outcome_have_contrasts_too(rule: Any, column: str) -> None:
    """Signed values again; by an outcome the sign is another in every dataset."""
    outcome = Outcome("k", "binary", levels=("no", "yes"))
    rows = build_rows(FRAME, ["a", "k"], LEVELS, {"k": ByOutcome(1, outcome)})
    design = sample_design(RESULTS["cases"][2])
    words = "a: a1 - a2" if column == "a" else "k: yes - no"
    statistic = f"difference(total, {words})"
    if column == "a":
        plain = build_rows(FRAME, ["k"], LEVELS, {"k": ByOutcome(1, outcome)})
        at = [3, 4, 5]
    else:
        plain, at = build_domains(FRAME, ["a"], LEVELS), [2, 5, 8, 11]
    made, signed = (
        Estimates(
            given, design, [(name, 0)], linearisation="plain", population_size=None, draws=3,
            replicates=2, rule=rule,
        )
        for given, name in ((rows, statistic), (plain, "total"))
    )  # fmt: skip
    for each in datasets(3, 2):
        made.add(each)
        sign = 2.0 * each.outcome[:, 1] - 1.0
        if column == "a":
            sign = np.select([FRAME["a"] == "a1", FRAME["a"] == "a2"], [1.0, -1.0], 0.0)
        y = each.outcome * np.stack([sign, np.ones(sign.size)], 1)
        signed.add(SyntheticDataset(each.draw, each.replicate, y, each.weight, y, each.weight))
    one, other = made.combined((statistic, 0)), signed.combined(("total", 0))
    for name in ("estimate", "standard_error", "between", "within"):
        np.testing.assert_allclose(
            getattr(one, name)[at], getattr(other, name)[: len(at)], rtol=1e-10
        )
    assert np.isfinite(one.standard_error[at]).all()


def test_a_row_or_level_that_is_not_there_is_told() -> None:
    for contrast, words in (
        (Contrast("difference", "c", None, None), "'c' is not one of them: 'a', 'b'"),
        (Contrast("difference", "a", "a9", "a1"), "'a1', 'a2', 'a3', 'a4', but names 'a9'"),
    ):
        with pytest.raises(InputError, match=words):
            Pairs.of(contrast, DOMAINS)


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("column", ["a", "b"])
@CASES
def test_shares_over_rows_equal_r_survey(
    case: dict[str, Any], column: str, linearisation: Any
) -> None:
    """R: among the records of a level the proportion in the row (svyciprop by xlogit)."""
    position = np.searchsorted(RESULTS["bounds"], Y, side="right").astype(float)
    key = (f"share({column})", 0)
    estimates = Estimates(
        DOMAINS, sample_design(case), [key], linearisation=linearisation,
        population_size=RESULTS["population"],
        outcomes=[Outcome("k", "categorical", levels=("low", "middle", "high"))],
    )  # fmt: skip
    estimates.add_alone(position[:, None], WEIGHT)
    made = estimates.combined(key)
    lower, upper = interval_of(statistic_of(key[0]), made, 0.95)
    for level in range(3):
        expected = {
            name: np.array(values, dtype=float)
            for name, values in case[linearisation]["shares"][level][column].items()
        }
        # At 0 and 1 R leaves rounding.
        inside = (expected["estimate"] > 1e-9) & (expected["estimate"] < 1 - 1e-9)
        assert inside.sum() >= 4
        for found, name in (
            (made.estimate, "estimate"), (made.standard_error, "se"), (lower, "lower"),
            (upper, "upper"),
        ):  # fmt: skip
            np.testing.assert_allclose(found[level::3][inside], expected[name][inside], rtol=1e-8)
    by_row = made.estimate[1::3]  # the level "middle"
    levels = [3, 6, 9] if column == "a" else [1, 2]
    assert np.nansum(by_row[levels]) == pytest.approx(1.0)
