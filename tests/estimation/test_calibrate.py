"""Calibrated weights and the variances of calibrated estimates."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import (
    UNBOUNDED,
    CalibratedWeights,
    Calibration,
    Margin,
    calibrated_weights,
)
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.survey.outcome import Outcome

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = {
    case["name"]: case for case in json.loads((GOLDEN / "calibration_survey.json").read_text())
}
WAYS = [(name, i) for name, case in CASES.items() for i in range(len(case["ways"]))]
STATISTICS = {"count": "count", "total": "total", "mean": "mean", "ratio": "ratio(y, z)"}


def records_of(name: str) -> pd.DataFrame:
    """The records of a case, with columns weight, as R had them."""
    if name in ("strat", "clus1"):
        frame = pd.read_csv(GOLDEN / "calibration_schools.csv", dtype={"district": str})
        frame = frame[frame["sample"] == name].reset_index(drop=True)
        return frame.rename(columns={"pw": "weight"})
    frame = pd.read_csv(GOLDEN / "taylor_survey.csv", dtype=str)
    for column in ("y", "z", "weight", "fpc_psu"):
        frame[column] = frame[column].astype(float)
    return frame.assign(weight=40.0) if name == "equal weights" else frame


def design_of(name: str, frame: pd.DataFrame) -> SampleDesign:
    """Strata, units and fractions of a case."""
    columns: dict[str, tuple[str | None, str | None]] = {
        "clusters": ("stratum", "psu"), "lonely": ("stratum_lonely_psu", "psu"),
        "equal weights": ("stratum", "psu"), "strat": ("stype", None),
        "clus1": (None, "district"),
    }  # fmt: skip
    strata, psu = columns.get(name, ("stratum", None))
    codes = np.zeros(len(frame), int) if strata is None else pd.factorize(frame[strata])[0]
    units = None if psu is None else pd.factorize(frame[psu])[0]
    fpc = None
    if name == "clusters":
        fpc = frame.groupby(codes)["fpc_psu"].first().to_numpy()
    elif name == "strat":
        fpc = (frame.groupby(codes).size() / frame.groupby(codes)["fpc"].first()).to_numpy()
    elif name == "clus1":
        fpc = np.array([frame["district"].nunique() / frame["fpc"].iloc[0]])
    return SampleDesign(codes, units, fpc, "adjust" if name == "lonely" else "fail")


def margins_of(case: dict[str, Any]) -> list[Margin]:
    """The margins of a case."""
    made = [Margin.of([by], totals) for by, totals in case["margins"].items()]
    amount = case.get("amount")
    return [*made, Margin.of([], amount["total"], amount["name"])] if amount else made


def calibrated(case: dict[str, Any], way: dict[str, Any], frame: pd.DataFrame) -> (
    CalibratedWeights
):
    """Calibrate the records of a case in one way."""
    low, high = way["bounds"]
    bounds = UNBOUNDED if low is None else (low, high)
    made = Calibration(margins_of(case), frame, method=way["method"], bounds=bounds)
    return made.calibrate(frame["weight"].to_numpy(), np.zeros((len(frame), 0)))


def standard_errors(
    case: dict[str, Any], frame: pd.DataFrame, made: CalibratedWeights, statistic: str
) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and standard errors of one statistic, in R's order of rows."""
    by, keys = case["by"], case["ways"][0]["estimates"]["count"]["key"]
    rows = build_domains(frame, [by], {by: tuple(keys[1:])})
    y = frame[case["y"]].to_numpy(float)
    outcome = np.stack([y, frame[case["z"]].to_numpy(float)], axis=1)
    found = estimate_domains(
        rows, design_of(case["name"], frame), weight=made.weight,
        outcome=outcome if statistic == "ratio" else y, statistic=STATISTICS[statistic],
        linearisation="plain", calibration=made,
    )  # fmt: skip
    return found.estimate, np.sqrt(found.variance)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_weights_estimates_and_errors_are_those_of_r(name: str, way: int) -> None:
    case, truth = CASES[name], CASES[name]["ways"][way]
    frame = records_of(name)
    made = calibrated(case, truth, frame)
    np.testing.assert_allclose(made.weight, truth["weight"], rtol=1e-8)
    for statistic, expected in truth["estimates"].items():
        estimate, se = standard_errors(case, frame, made, statistic)
        np.testing.assert_allclose(estimate, expected["estimate"], rtol=1e-8)
        scale = 1e-8 * np.abs(expected["estimate"])  # rows that are totals have no error
        if truth["se"]:
            several = [(frame[case["by"]] == key).sum() > 1 for key in expected["key"][1:]]
            known = np.array([True, *several])
            assert (
                np.abs(se - expected["se"])[known]
                <= np.maximum(1e-8 * np.abs(expected["se"]), scale * 1e-2)[known]
            ).all()


def test_bounds_are_hit_and_not_hit() -> None:
    """The golden values have both."""
    hit = {
        (name, bool(np.isclose(made.ratio.max(), way["bounds"][1])))
        for name, case in CASES.items()
        for way in case["ways"]
        if way["bounds"][1] is not None and way["method"] == "raking"
        for made in [calibrated(case, way, records_of(name))]
    }
    assert {each for _, each in hit} == {True, False}


def test_errors_are_not_those_of_uncalibrated_weights() -> None:
    """The test of errors rejects variances that ignore calibration, or regress on w, not d."""
    case = CASES["clus1"]
    frame, way = records_of("clus1"), case["ways"][1]
    made = calibrated(case, way, frame)
    expected = np.array(way["estimates"]["mean"]["se"])
    blind = CalibratedWeights(made.weight, made.weight, made.x)
    _, on_w = standard_errors(case, frame, blind, "mean")
    rows = build_domains(frame, [case["by"]], {case["by"]: ("No", "Yes")})
    ignored = estimate_domains(
        rows, design_of("clus1", frame), weight=made.weight,
        outcome=frame[case["y"]].to_numpy(float), statistic="mean", linearisation="ratio",
    )  # fmt: skip
    for wrong in (on_w, np.sqrt(ignored.variance)):
        assert np.abs(wrong / expected - 1.0).max() > 1e-3


@pytest.mark.parametrize("psu", [False, True])
@pytest.mark.parametrize("lonely", ["remove", "adjust", "average"])
def test_residuals_written_out(psu: bool, lonely: Any) -> None:
    """Every residual of every row, record by record, on weights of a planted form."""
    rng = np.random.default_rng(4)
    n = 60
    strata = np.sort(rng.integers(0, 7, n))
    strata[-1] = 7
    strata = pd.factorize(strata)[0]
    units = pd.factorize(strata * 10 + rng.integers(0, 3, n))[0] if psu else None
    design = SampleDesign(strata, units, None, lonely)
    frame = pd.DataFrame({"a": rng.choice(["p", "q", "r"], n), "b": rng.choice(["s", "t"], n)})
    rows = build_domains(frame, ["a", "b"], {"a": ("p", "q", "r"), "b": ("s", "t")})
    d, y = rng.uniform(1, 5, n), rng.gamma(2.0, 1.0, n)
    x = np.column_stack([frame["b"] == "s", frame["b"] == "t", y + rng.normal(size=n)]) * 1.0
    w = calibrated_weights(x, d, 1.1 * (x.T @ d) + [3.0, -2.0, 1.0])
    found = estimate_domains(
        rows, design, weight=w, outcome=y, statistic="mean", linearisation="plain",
        calibration=CalibratedWeights(w, d, x),
    )  # fmt: skip
    for row in range(rows.n_rows):
        inside = (rows.codes == row).any(axis=0)
        z = inside * (y - found.estimate[row]) / w[inside].sum()
        root = np.sqrt(d)
        b = np.linalg.lstsq(root[:, None] * x, root * z, rcond=None)[0]
        u = w * (z - x @ b)
        if units is not None:
            u = np.bincount(units, u)
        total, alone = 0.0, 0
        for h in range(design.n_strata):
            of_stratum = u[design.psu_strata == h]
            n_h = of_stratum.size
            if n_h > 1:
                total += n_h / (n_h - 1) * ((of_stratum - of_stratum.mean()) ** 2).sum()
            else:
                alone += 1
                total += of_stratum[0] ** 2 if lonely == "adjust" else 0.0
        if lonely == "average":
            total *= design.n_strata / (design.n_strata - alone)
        np.testing.assert_allclose(found.variance[row], total, rtol=1e-9)


def test_ratio_linearisation_is_calibration_to_the_size_alone() -> None:
    rng = np.random.default_rng(5)
    n = 40
    frame = pd.DataFrame({"a": rng.choice(["p", "q"], n)})
    rows = build_domains(frame, ["a"], {"a": ("p", "q")})
    design, d = SampleDesign(np.repeat([0, 1], 20)), rng.uniform(1, 5, n)
    y = rng.normal(10.0, 1.0, n)
    w = d * (500.0 / d.sum())
    one = CalibratedWeights(w, d, np.ones((n, 1)))
    for statistic in ("count", "total", "mean"):
        ours, known = (
            estimate_domains(
                rows, design, weight=weight, outcome=y, statistic=statistic,
                linearisation="ratio", population_size=500.0, calibration=calibration,
            )
            for weight, calibration in ((w, one), (d, None))
        )  # fmt: skip
        np.testing.assert_allclose(ours.estimate, known.estimate, rtol=1e-12)
        np.testing.assert_allclose(ours.variance, known.variance, rtol=1e-9, atol=1e-12)


def test_calibrate_in_one_call() -> None:
    """``ss.calibrate`` makes the margins that were made by hand above."""
    frame = records_of("clus1")
    case, way = CASES["clus1"], CASES["clus1"]["ways"][1]
    margins = [
        {"by": "stype", "totals": case["margins"]["stype"]},
        {"amount": "api99", "totals": case["amount"]["total"]},
    ]
    made = ss.calibrate(frame, "weight", margins)
    np.testing.assert_allclose(made.weight, way["weight"], rtol=1e-8)
    for wrong, words in (
        ([{"by": "stype"}], "margins[1]: expected totals"),
        ([{**margins[0], "levels": 3}], "margins[1]: expected totals"),
    ):
        with pytest.raises(InputError) as caught:
            ss.calibrate(frame, "weight", wrong)
        assert words in str(caught.value)
    with pytest.raises(InputError, match="183 numbers above zero"):
        ss.calibrate(frame, -frame["weight"].to_numpy(), margins)


@pytest.mark.parametrize("method", ["raking", "linear"])
def test_totals_are_met_far_from_the_sample(method: Any) -> None:
    """From weights a million times too small, to 1e-10."""
    rng = np.random.default_rng(6)
    x = np.column_stack([np.ones(300), rng.random((300, 3)) < 0.4, rng.gamma(2.0, 1e4, 300)]) * 1.0
    w = rng.lognormal(0.0, 1.0, 300)
    totals = x.T @ w
    base = rng.lognormal(0.0, 0.3, 300) * 1e-6
    made = calibrated_weights(x, base, totals, method=method)
    np.testing.assert_allclose(x.T @ made, totals, rtol=1e-10)


def test_rounding_refuses_no_totals() -> None:
    """Two classes, whose ratios are known: close to the minimum its function no longer falls."""
    for seed in range(150):
        rng = np.random.default_rng(seed)
        female = rng.random(300) < 0.35
        w = rng.lognormal(5.75, 0.35, 300)
        w *= 1e5 / w.sum()
        x = np.column_stack([female, ~female]) * 1.0
        made = calibrated_weights(x, w, np.array([36e3, 64e3]), method="raking", bounds=UNBOUNDED)
        ratio = np.where(female, 36e3 / w[female].sum(), 64e3 / w[~female].sum())
        np.testing.assert_allclose(made, w * ratio, rtol=1e-9)


FRAME = pd.DataFrame({"region": ["N", "N", "S", "S"], "sex": ["F", "M", "F", "F"]})
HEALTH = Outcome("health", kind="categorical", levels=("good", "poor"))
REGION = {"by": ["region"], "totals": {"N": 50, "S": 50}}


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        ([{"by": ["region"], "totals": {"N": 5}}], "[1].totals: region = S has no total"),
        ([{"by": ["region"], "totals": {"N": 5, "S": -1}}],
         "[1] (region = S): expected a total above zero, got -1"),
        ([{"by": ["region"], "totals": {"N": 5, "S": 5, "W": 5}}],
         "[1].totals: no record of the survey is in region = W"),
        ([REGION, {"by": ["sex"], "totals": {"F": 70, "M": 40}}],
         "[2].totals: they add up to 110, but those of calibration[1] add up to 100"),
        ([REGION, {"by": ["sex"], "totals": {"F": 40, "M": 60}}],
         "[2].totals: they contradict calibration[1]"),
        ([REGION, {"by": ["region", "sex"],
                   "totals": {"N": {"F": 20, "M": 20}, "S": {"F": 60}}}],
         "[2].totals: they contradict calibration[1]"),
        ([REGION, {"by": ["health"], "totals": {"good": 90}}],
         "[2].totals: health = poor has no total"),
        ([{"by": ["regoin"], "totals": {"N": 5, "S": 5}}],
         "[1].by: 'regoin' is not among the public columns"),
        ([{"by": [], "totals": 3.0}], "[1]: expected by, amount, or both"),
        ([{"by": ["region"], "totals": 3.0}], "[1].totals: expected a table of levels"),
        ([{"by": ["region"], "totals": {"N": "x", "S": 1}}], "[1].totals.N: expected a number"),
    ],
)  # fmt: skip
def test_margins_that_cannot_hold(margins: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Calibration(
            [Margin.of(m["by"], m["totals"], m.get("amount"), f"calibration[{i}]")
             for i, m in enumerate(margins, start=1)], FRAME, [HEALTH]
        )  # fmt: skip
    assert words in str(caught.value)


def test_bounds_that_cannot_be_kept() -> None:
    made = Calibration(
        [Margin.of(["region"], {"N": 90, "S": 10}, place="calibration[1]")], FRAME,
        bounds=(0.5, 1.5),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"calibration\[1\] \(region = [NS]\): no weights with "
                                         r"ratios from 0.5 to 1.5"):  # fmt: skip
        made.calibrate(np.full(4, 25.0), np.zeros((4, 0)))


def test_level_of_an_outcome_without_a_record() -> None:
    made = Calibration([Margin.of(["health"], {"good": 90, "poor": 10})], FRAME, [HEALTH])
    with pytest.raises(InputError, match=r"health = poor\): no record is in this class"):
        made.calibrate(np.full(4, 25.0), np.zeros((4, 1)))
    outcomes = np.array([[0.0], [1.0], [0.0], [1.0]])
    weight = made.calibrate(np.full(4, 25.0), outcomes).weight
    np.testing.assert_allclose(weight, [45.0, 5.0, 45.0, 5.0])


def test_amounts_of_records_that_cannot_have_the_total() -> None:
    """Amounts that the classes determine: one total of the two is wrong."""
    frame = FRAME.assign(size=[1.0, 1.0, 2.0, 2.0])
    made = Calibration([
        Margin.of(["region"], {"N": 50, "S": 50}, place="calibration[1]"),
        Margin.of([], 160.0, "size", "calibration[2]"),
    ], frame)  # fmt: skip
    with pytest.raises(InputError, match="contradicts the others"):
        made.calibrate(np.full(4, 25.0), np.zeros((4, 0)))


@pytest.mark.parametrize("bounds", [(1.0, 2.0), (0.5, 0.9), (2.0, 0.5)])
def test_bounds_on_either_side_of_one(bounds: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="bounds: expected a number below 1"):
        Calibration([Margin.of(["region"], {"N": 5, "S": 5})], FRAME, bounds=bounds)
