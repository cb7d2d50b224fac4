"""Rows of some levels taken together.

Truth: R's survey package on a recoded factor (tests/golden/collapsed_survey.R wrote the figures);
the same table of records whose levels were recoded beforehand, to the last digits, for every
statistic, design, rule and kind of row; sums of rows. A row that is added up from the rows of its
levels, as if these were independent, has another standard error.
"""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights, calibrated_weights
from surveysynth.estimation.classes import ByOutcome
from surveysynth.estimation.combining import PartialSynthesis
from surveysynth.estimation.domains import build_domains, build_rows
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.margins import (
    RowExtremes,
    interior_rows,
    margin_matrix,
    margin_set_of_row,
    sums_by_row,
)
from surveysynth.estimation.replicate_weights import jackknife
from surveysynth.estimation.replication import estimate_domains_replicated
from surveysynth.estimation.row_labels import collapsed_rows, hidden_rows
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.subpopulation import (
    Subpopulation,
    build_subpopulation,
    shown_rows,
    shown_table,
)
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.estimation.total_variance import TotalVariance, public_rows
from surveysynth.evaluation.baselines.laplace import group_sensitivities, row_sensitivities
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.where import parse_where
from tests.estimation.test_taylor_golden import FRAME, GOLDEN, LEVELS, RESULTS, sample_design

COLLAPSED: dict[str, Any] = json.loads((GOLDEN / "collapsed_survey.json").read_text())
Y, Z, WEIGHT = (FRAME[name].to_numpy(dtype=float) for name in ("y", "z", "weight"))
TOGETHER = {"a": {"other": ["a3", "a1"], "small": ["a2", "a4"]}}
DOMAINS = build_domains(FRAME, ["a", "b"], LEVELS, other=TOGETHER)
RECODED = FRAME.assign(a=FRAME["a"].map({"a1": "other", "a3": "other"}).fillna("small"))
OF_RECODED = {"a": ["other", "small"], "b": LEVELS["b"]}
STATISTICS = [
    "count", "total", "mean", "median", "quantile(0.9)", "ratio(y, z)", "ratio(count, a: margin)",
    "difference(mean, a: margin)", "difference(median, b: b1 - b2)", "ratio(mean, b: margin)",
]  # fmt: skip


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("case", COLLAPSED["cases"], ids=lambda case: case["name"])
def test_equals_r_survey(case: dict[str, Any], linearisation: Any) -> None:
    rows = DOMAINS.table.index[DOMAINS.table["a"] == "other"]
    assert list(DOMAINS.table.loc[rows, "b"]) == ["All", "b1", "b2"]
    for name, expected in case[linearisation].items():
        made = estimate_domains(
            DOMAINS, sample_design(case), weight=WEIGHT, outcome=Z if name == "proportion" else Y,
            statistic="ratio(count, a: margin)" if name == "share" else name,
            linearisation=linearisation, population_size=COLLAPSED["population"],
        )  # fmt: skip
        np.testing.assert_allclose(made.estimate[rows], expected["estimate"], rtol=1e-8)
        np.testing.assert_allclose(np.sqrt(made.variance[rows]), expected["se"], rtol=1e-8)


def lines(rows: Any, statistic: str, design: SampleDesign, **options: Any) -> pd.DataFrame:
    """One table of five datasets by a rule: its by columns, estimate, standard error, df and n."""
    rng = np.random.default_rng(4)
    estimates = Estimates(
        rows, design, [(statistic, 0)], draws=5,
        **{"linearisation": "plain", "population_size": None,
           "outcomes": [Outcome("y"), Outcome("z"), STATUS], **options},
    )  # fmt: skip
    for draw in range(1, 6):
        outcomes = np.stack([Y, Z, FRAME["a"].str[1].astype(int) - 1.0], axis=1)
        outcomes[:, 0] *= np.exp(rng.normal(0, 0.1, Y.size))
        outcomes[:, 2] = np.where(rng.random(Y.size) < 0.1, 1.0, outcomes[:, 2])
        weight = WEIGHT * np.exp(rng.normal(0, 0.1, Y.size))
        estimates.add(SyntheticDataset(draw, 1, outcomes, weight, outcomes, weight))
    combined, found = estimates.combined((statistic, 0)), estimates.lines((statistic, 0))
    return found.cells.assign(
        estimate=combined.estimate[found.held], se=combined.standard_error[found.held],
        df=combined.df[found.held], n=found.n,
    )  # fmt: skip


STATUS = Outcome("status", "categorical", levels=("s1", "s2", "s3", "s4"))


def same_rows(first: pd.DataFrame, second: pd.DataFrame, *columns: str) -> None:
    """Rows with the same labels have the same numbers."""
    keys = [name for name in columns if name in first]  # a contrast of two levels has lost one
    both = first.merge(second, on=keys, how="inner", suffixes=("", "_again"))
    assert len(both) == len(second)
    assert np.isfinite(both["se"]).sum() >= 2
    for name in ("estimate", "se", "df", "n"):
        np.testing.assert_allclose(both[name], both[f"{name}_again"], rtol=1e-11)


@pytest.mark.parametrize("rule", ["partial", "total"])
@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_rows_are_those_of_recoded_records(statistic: str, linearisation: Any, rule: str) -> None:
    case = next(each for each in RESULTS["cases"] if each["name"] == "clusters")
    design = sample_design(case)
    codes = [pd.factorize(FRAME[name])[0] for name in ("a", "b", "psu")]
    options = {
        "linearisation": linearisation,
        "population_size": RESULTS["population"] if linearisation == "ratio" else None,
        "rule": PartialSynthesis() if rule == "partial" else TotalVariance(public_rows(*codes)),
    }
    made = lines(DOMAINS, statistic, design, **options)
    recoded = lines(build_domains(RECODED, ["a", "b"], OF_RECODED), statistic, design, **options)
    same_rows(made, recoded[recoded["a"] != "All"], "a", "b")
    # Rows of single levels stay as they are, in their places.
    single = lines(build_domains(FRAME, ["a", "b"], LEVELS), statistic, design, **options)
    kept = made[~made["a"].isin(["other", "small"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, single)
    assert made["is_margin"][made["a"].isin(["other", "small"])].all()
    assert not made["a"].str.startswith("\0").any()


@pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])
def test_every_design_has_the_variance_of_recoded_records(case: dict[str, Any]) -> None:
    design = sample_design(case)
    expected = build_domains(RECODED, ["a", "b"], OF_RECODED)
    for statistic in ("count", "mean"):
        made, again = (
            estimate_domains(rows, design, weight=WEIGHT, outcome=Y, statistic=statistic,
                             linearisation="ratio")
            for rows in (DOMAINS, expected)
        )  # fmt: skip
        for label in ("other", "small"):
            here, there = (rows.table["a"] == label for rows in (DOMAINS, expected))
            np.testing.assert_allclose(made.variance[here], again.variance[there], rtol=1e-10)


def test_calibrated_rows_and_replicates_are_those_of_recoded_records() -> None:
    design, recoded = SampleDesign(FRAME["b"].factorize()[0]), build_domains(
        RECODED, ["a", "b"], OF_RECODED
    )
    x = np.stack([np.ones(Y.size), FRAME["c"] == "c1"], axis=1).astype(float)
    weight = calibrated_weights(x, WEIGHT, x.T @ WEIGHT * [1.1, 1.2])
    calibration = CalibratedWeights(weight, WEIGHT, x)
    found = []
    for rows in (DOMAINS, recoded):
        taylor = estimate_domains(
            rows, design, weight=weight, outcome=Y, statistic="total", linearisation="plain",
            calibration=calibration,
        )  # fmt: skip
        jack = [
            estimate_domains_replicated(
                rows, jackknife(design), weight=WEIGHT, outcome=Y, statistic=each,
                linearisation="plain",
            )
            for each in ("mean", "ratio(count, a: margin)")
        ]  # fmt: skip
        which = rows.table["a"].isin(["other", "small"]).to_numpy()
        found.append(np.stack([part[which] for each in (taylor, *jack)
                               for part in (each.estimate, each.variance)]))  # fmt: skip
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_rows_of_a_subpopulation_and_of_outcomes_are_those_of_recoded_records() -> None:
    design = SampleDesign(FRAME["b"].factorize()[0])
    inside = Subpopulation(parse_where("c == 'c1' and a != 'a4'"), FRAME, ())
    recoded = Subpopulation(
        parse_where("c == 'c1' and kept == 'yes'"),
        RECODED.assign(kept=np.where(FRAME["a"] == "a4", "no", "yes")), (),
    )  # fmt: skip
    rows = build_subpopulation(inside, ["a", "b"], LEVELS, {}, None, TOGETHER)
    made = lines(rows, "mean", design)
    again = lines(build_subpopulation(recoded, ["a", "b"], OF_RECODED, {}), "mean", design)
    same_rows(made, again, "a", "b")
    assert "a4" not in set(made["a"])  # nobody can be there
    # By an outcome, whose records are others in every dataset.
    by_status = {"status": ByOutcome(2, STATUS)}
    rows = build_rows(
        FRAME, ["b", "status"], LEVELS, by_status, None, {"status": {"rest": ["s4", "s3", "s2"]}}
    )
    assert list(rows.by_dataset) == list(rows.table["status"] != "All")
    assert (rows.n_public == np.array([(FRAME["b"] == b).sum() if b != "All" else Y.size
                                       for b in rows.table["b"]])).all()  # fmt: skip
    two = Outcome("status", "categorical", levels=("s1", "rest"))

    class Recoded(ByOutcome):
        def of(self, outcomes: Any) -> Any:
            return (outcomes[:, 2] > 0).astype(np.int64)

    same = build_rows(FRAME, ["b", "status"], LEVELS, {"status": Recoded(2, two)})
    for rule in (PartialSynthesis(), TotalVariance(public_rows(FRAME["b"].factorize()[0]))):
        for statistic in ("count", "mean", "ratio(count, status: margin)"):
            same_rows(lines(rows, statistic, design, rule=rule),
                      lines(same, statistic, design, rule=rule), "b", "status")  # fmt: skip


def test_counts_are_sums_of_levels_but_errors_are_not() -> None:
    design = SampleDesign(np.zeros(Y.size, dtype=np.int64))
    made = estimate_domains(
        DOMAINS, design, weight=WEIGHT, outcome=None, statistic="count", linearisation="ratio"
    )
    table, off = DOMAINS.table, []
    for b in ("All", "b1", "b2"):
        parts = table["a"].isin(["a1", "a3"]) & (table["b"] == b)
        whole = (table["a"] == "other") & (table["b"] == b)
        assert made.estimate[parts].sum() == pytest.approx(made.estimate[whole][0], rel=1e-12)
        assert DOMAINS.n[parts].sum() == DOMAINS.n[whole][0]
        off.append(made.variance[parts].sum() / made.variance[whole][0] - 1)
    assert np.abs(off).max() > 0.05


def test_margins_know_which_cells_make_a_row() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=Y.size)
    cells = interior_rows(DOMAINS)
    assert (DOMAINS.table["is_margin"][cells] == [False] * cells.size).all()
    by_row = sums_by_row(DOMAINS, values)
    np.testing.assert_allclose(margin_matrix(DOMAINS) @ by_row[cells], by_row, atol=1e-12)
    extremes = RowExtremes(DOMAINS)
    np.testing.assert_allclose(extremes.sums(values[:, None])[:, 0], by_row, atol=1e-12)
    ranges = extremes.ranges(values[:, None])
    sets = margin_set_of_row(DOMAINS)
    members = {
        "All": LEVELS["a"], "other": ["a1", "a3"], "small": ["a2", "a4"],
        "\0not other": ["a2", "a4"], "\0not small": ["a1", "a3"],
    }  # fmt: skip
    for row, (a, b) in enumerate(zip(DOMAINS.table["a"], DOMAINS.table["b"], strict=True)):
        inside = FRAME["a"].isin(members.get(a, [a])) & ((b == "All") | (FRAME["b"] == b))
        assert ((DOMAINS.codes[sets[row]] == row) == inside).all()
        assert DOMAINS.n[row] == inside.sum()
        if inside.any():
            assert ranges.most[row, 0] == values[inside].max()
            assert ranges.least[row, 0] == values[inside].min()


def test_rows_that_nobody_sees_cost_no_noise() -> None:
    weight = WEIGHT[:, None].copy()
    weight[(FRAME["a"] == "a2").to_numpy()] *= 100.0
    rows = build_domains(FRAME, ["a"], LEVELS, other={"a": {"other": ["a1", "a3"]}})
    made = group_sensitivities(rows, row_sensitivities(rows, weight, None, "count", "paper"))[:, 0]
    inside = FRAME["a"].isin(["a1", "a3"]).to_numpy()
    other = float(np.ptp(weight[inside]))
    assert made[rows.table["a"] == "other"] == pytest.approx(other)
    assert np.ptp(weight[~inside]) > 10 * other  # of the rest, in the same margin set


def test_a_table_shows_no_rest() -> None:
    assert hidden_rows(DOMAINS.labels).sum() == 2 * 3
    assert collapsed_rows(DOMAINS.labels).sum() == 4 * 3
    table = shown_table(DOMAINS)
    assert list(dict.fromkeys(table["a"])) == ["All", *LEVELS["a"], "other", "small"]
    assert (shown_rows(DOMAINS) == ~hidden_rows(DOMAINS.labels)).all()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"c": {"other": ["c1", "c2"]}}, "c: levels taken together are those of a by variable"),
        ({"a": {"other": ["a1", "b1"]}}, r"takes together 'b1', but the levels of 'a' are 'a1'"),
        ({"a": {"other": ["a1", "A2"]}}, r"Did you mean 'a2'\?"),
        ({"a": {"other": ["a1"]}}, "two or more different levels, but has 'a1'"),
        ({"a": {"other": ["a1", "a1"]}}, "two or more different levels"),
        ({"a": {"other": ["a1", "a2", "a3", "a4"]}}, "takes all levels together, .* margin 'All'"),
        ({"a": {"a1": ["a1", "a2"]}}, "'a1' has the label of a level of 'a'; choose another"),
        ({"a": {"All": ["a1", "a2"]}}, "'All' has the label of the margin of 'a'"),
    ],
)
def test_levels_that_cannot_be_taken_together(other: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_domains(FRAME, ["a", "b"], LEVELS, other=other)


def test_contrasts_name_single_levels() -> None:
    with pytest.raises(InputError, match=r"levels of 'a', which are 'a1', .*'a4', but names 'oth"):
        estimate_domains(
            DOMAINS, SampleDesign(np.zeros(Y.size, dtype=np.int64)), weight=WEIGHT, outcome=Y,
            statistic="difference(mean, a: other - a2)", linearisation="plain",
        )  # fmt: skip
