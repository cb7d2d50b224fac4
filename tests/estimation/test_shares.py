"""Shares of levels and rows by an outcome.

Truth: R's survey package (svymean of a factor, svyciprop by "xlogit"; tests/golden/shares_survey.R
wrote the figures); tables by the same outcome as a column of text, dataset by dataset; sums over
records; the variance of expected estimates over repeated samples.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined, combine, logit_interval
from surveysynth.estimation.domains import (
    ByOutcome,
    RowsByOutcome,
    build_domains,
    build_rows,
    sums_by_row,
)
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import statistic_of, table_keys
from surveysynth.estimation.taylor import DomainEstimates, estimate_domains
from surveysynth.estimation.total_variance import TotalVariance, public_rows
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.outcome import Outcome

GOLDEN = Path(__file__).parents[1] / "golden"
RESULTS: dict[str, Any] = json.loads((GOLDEN / "shares_survey.json").read_text())
FRAME = pd.read_csv(GOLDEN / "taylor_survey.csv")
LEVELS = {"a": ["a1", "a2", "a3", "a4"], "b": ["b1", "b2"]}
KIND = Outcome("k", "categorical", levels=tuple(RESULTS["levels"]))
POSITION = np.searchsorted(RESULTS["bounds"], FRAME["y"], side="right").astype(np.float64)
SHARE = ("share", 0)


def sample_design(case: dict[str, Any]) -> SampleDesign:
    stratum = FRAME[case["strata"]] if case["strata"] else pd.Series("all", index=FRAME.index)
    strata, _ = pd.factorize(stratum)
    psu = pd.factorize(FRAME[case["psu"]])[0] if case["psu"] else None
    fpc = FRAME.groupby(strata)[case["fpc"]].first().to_numpy() if case["fpc"] else None
    return SampleDesign(strata, psu, fpc)


def shares(case: dict[str, Any], linearisation: Any) -> Combined:
    estimates = Estimates(
        build_domains(FRAME, ["a", "b"], LEVELS), sample_design(case), [SHARE],
        linearisation=linearisation, population_size=RESULTS["population"], outcomes=[KIND],
    )  # fmt: skip
    estimates.add_alone(POSITION[:, None], FRAME["weight"].to_numpy())
    return estimates.combined(SHARE)


@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
@pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])
def test_equals_r_survey(case: dict[str, Any], linearisation: str) -> None:
    expected = {
        name: np.array(values, dtype=float) for name, values in case[linearisation].items()
    }
    made = shares(case, linearisation)
    n = np.repeat(build_domains(FRAME, ["a", "b"], LEVELS).n, 3)
    assert made.df_design == case["df"]
    assert (expected["estimate"] == 0).any()
    assert {0, 1} <= set(n.tolist())
    for name in ("se", "lower", "upper"):  # R gives zero, or rounding, to the mean of one record
        expected[name][n == 1] = np.nan
    lower, upper = logit_interval(made, case["level"])
    np.testing.assert_allclose(made.estimate, expected["estimate"], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(made.standard_error, expected["se"], rtol=1e-8, atol=1e-12)
    # At 0 and 1 R has no interval either, or one of rounding: from 0 to 1, or where the share is.
    edge = (expected["estimate"] < 1e-12) | (expected["estimate"] > 1 - 1e-12)
    assert np.isnan([lower[edge], upper[edge]]).all()
    inside = ~edge
    np.testing.assert_allclose(lower[inside], expected["lower"][inside], rtol=1e-8)
    np.testing.assert_allclose(upper[inside], expected["upper"][inside], rtol=1e-8)


@pytest.mark.parametrize("case", RESULTS["cases"], ids=lambda case: case["name"])
def test_numerator_and_denominator_taken_as_independent_are_found_out(
    case: dict[str, Any]
) -> None:
    design, domains = sample_design(case), build_domains(FRAME, ["a", "b"], LEVELS)
    weight = FRAME["weight"].to_numpy()

    def table(statistic: str, outcome: FloatArray | None) -> DomainEstimates:
        return estimate_domains(
            domains, design, weight=weight, outcome=outcome, statistic=statistic,
            linearisation="plain",
        )  # fmt: skip

    size, expected = table("count", None), np.array(case["plain"]["se"], dtype=float)
    for level in range(3):
        part = table("total", (level == POSITION).astype(float))
        share = part.estimate / size.estimate
        wrong = np.sqrt(part.variance + share**2 * size.variance) / size.estimate
        true = expected[level::3]
        told = (true > 1e-6) & np.isfinite(true)
        off = np.abs(wrong[told] / true[told] - 1)
        assert off.min() > 1e-4  # the comparison above is to 1e-8
        assert level < 2 or np.median(off) > 0.2  # of the level with the most records


def test_the_last_level_of_two_is_the_proportion() -> None:
    z = FRAME["z"].to_numpy(dtype=float)
    binary = Outcome("z", "binary")
    estimates = Estimates(
        build_domains(FRAME, ["a"], LEVELS), sample_design(RESULTS["cases"][2]),
        [("proportion", 0), ("share", 0), ("mean", 0)], linearisation="ratio",
        population_size=5000.0, outcomes=[binary],
    )  # fmt: skip
    estimates.add_alone(z[:, None], FRAME["weight"].to_numpy())
    share, proportion, mean = (
        estimates.combined((name, 0)) for name in ("share", "proportion", "mean")
    )
    for name in ("estimate", "standard_error", "df", "within"):
        np.testing.assert_array_equal(getattr(share, name)[1::2], getattr(proportion, name))
        np.testing.assert_array_equal(getattr(mean, name), getattr(proportion, name))
    np.testing.assert_allclose(share.standard_error[::2], share.standard_error[1::2], rtol=1e-9)


def test_values_at_a_spike_are_a_level() -> None:
    benefit = Outcome("benefit", "semicontinuous", spikes=(0.0, 100.0))
    assert benefit.category_names == ("other", "0", "100")
    estimates = Estimates(
        build_domains(FRAME, [], {}), SampleDesign(np.zeros(len(FRAME), dtype=np.int64)), [SHARE],
        linearisation="plain", population_size=None, outcomes=[benefit],
    )  # fmt: skip
    values = np.where(POSITION == 0, 0.0, np.where(POSITION == 1, 100.0, FRAME["y"]))
    weight = FRAME["weight"].to_numpy()
    estimates.add_alone(values[:, None], weight)
    expected = [weight[position == POSITION].sum() / weight.sum() for position in (2, 0, 1)]
    np.testing.assert_allclose(estimates.combined(SHARE).estimate, expected, rtol=1e-13)
    assert estimates.levels(SHARE) == benefit.category_names


# --- Intervals -----------------------------------------------------------------------------------


def combined(p: float, se: float, df: float = 20.0) -> Combined:
    return combine(np.full((1, 1, 1), p), np.full((1, 1, 1), se**2), df)


def test_an_interval_by_hand() -> None:
    lower, upper = logit_interval(combined(0.2, 0.05, df=10.0), 0.9)
    # qt(0.95, 10) = 1.812461; 1.812461 * 0.05 / 0.16 = 0.566394; logit(0.2) = -1.386294
    np.testing.assert_allclose([lower[0], upper[0]], [0.124261, 0.305785], atol=1e-6)


shares_or_edges = st.floats(1e-300, 1.0) | st.sampled_from([0.0, 1.0])


@given(shares_or_edges, st.floats(0.0, 1.0), st.floats(1.0, 1e6))
def test_intervals_of_shares_stay_between_0_and_1(p: float, se: float, df: float) -> None:
    lower, upper = logit_interval(combined(p, se, df))
    if p in (0.0, 1.0):
        assert np.isnan([lower[0], upper[0]]).all()
    else:
        assert 0.0 <= lower[0] <= p * (1 + 1e-9)
        assert p * (1 - 1e-9) <= upper[0] <= 1.0


# --- What is made of which outcome ---------------------------------------------------------------


def test_statistics_are_made_of_outcomes_that_have_them() -> None:
    outcomes = [
        Outcome("pay"), Outcome("benefit", "semicontinuous", spikes=(0.0,)),
        Outcome("employed", "binary"), Outcome("status", "categorical", levels=("a", "b", "c")),
    ]  # fmt: skip
    keys = table_keys(["count", "total", "mean", "proportion", "share"], outcomes)
    assert [column for name, column in keys if name == "share"] == [1, 2, 3]
    assert [column for name, column in keys if name == "mean"] == [0, 1]
    assert [column for name, column in keys if name == "proportion"] == [2]
    assert keys[0] == ("count", None)
    # Not of what the rows are made by.
    assert table_keys(["share"], outcomes, ["region", "employed"]) == (("share", 1), ("share", 3))
    assert table_keys(["share"], outcomes[:1]) == table_keys(["mean"], outcomes[2:]) == ()
    share = statistic_of("share")
    assert "pay is continuous" in share.misfit(outcomes[:1])
    assert "rows are by 'employed'" in share.misfit(outcomes[2:3], ["employed"])


# --- Rows by an outcome --------------------------------------------------------------------------

STATUS = Outcome("status", "categorical", levels=("works", "studies", "neither"))
REGION = {"region": ["n", "s", "w"]}
OUTCOMES = [Outcome("pay"), STATUS]


def region_frame(n: int) -> pd.DataFrame:
    return pd.DataFrame({"region": np.array(["n", "s"])[np.arange(n) % 2]})  # none in w


def rows_by_status(frame: pd.DataFrame, by: tuple[str, ...] = ("region", "status")) -> Any:
    return build_rows(frame, by, REGION, {"status": ByOutcome(1, STATUS)}, {"status": "Any"})


def draw(rng: np.random.Generator, n: int, p: Any = (0.6, 0.3, 0.1)) -> FloatArray:
    return np.stack([rng.lognormal(0, 1, n), rng.choice(3, n, p=p).astype(float)], axis=1)


@pytest.mark.parametrize("by", [("region", "status"), ("status", "region"), ("status",)])
def test_rows_of_a_dataset_are_those_of_its_column_as_text(by: tuple[str, ...]) -> None:
    frame, rng = region_frame(60), np.random.default_rng(1)
    rows = rows_by_status(frame, by)
    assert isinstance(rows, RowsByOutcome)
    for _ in range(3):
        outcomes = draw(rng, 60)
        text = frame.assign(status=STATUS.labels(outcomes[:, 1]))
        expected = build_domains(
            text, by, {**REGION, "status": STATUS.levels}, {"status": "Any"}
        )
        made = rows.of(outcomes)
        pd.testing.assert_frame_equal(made.table, expected.table)
        np.testing.assert_array_equal(made.codes, expected.codes)
        np.testing.assert_array_equal(made.n, expected.n)
    at_status = (rows.table["status"] != "Any").to_numpy()
    np.testing.assert_array_equal(rows.by_dataset, at_status)
    # Public records that could be there: those of the row over all levels.
    over = build_domains(frame, [name for name in by if name != "status"], REGION)
    keys = ["region"] if "region" in by else []
    n = {tuple(row): size for row, size in zip(over.table[keys].itertuples(index=False, name=None),
                                               over.n, strict=True)}  # fmt: skip
    found = [n[tuple(row)] for row in rows.table[keys].itertuples(index=False, name=None)]
    np.testing.assert_array_equal(rows.n_public, found)


def test_sums_by_public_columns_alone_are_the_same_in_all_datasets() -> None:
    """To the last bit: else a public count would seem to differ from the sample's."""
    frame, rng = region_frame(400), np.random.default_rng(2)
    rows, weight = rows_by_status(frame), rng.lognormal(1, 0.6, 400)
    sums = np.stack([sums_by_row(rows.of(draw(rng, 400)), weight) for _ in range(5)])
    assert (sums == sums[0]).all(axis=0)[~rows.by_dataset].all()
    assert not (sums == sums[0]).all(axis=0)[rows.by_dataset & (sums[0] > 0)].any()
    of_levels = [rows.table["status"].eq(each).to_numpy() for each in STATUS.levels]
    np.testing.assert_allclose(
        sum(sums[:, each] for each in of_levels), sums[:, ~rows.by_dataset], rtol=1e-12
    )


def test_rows_by_an_outcome_are_laid_out_with_care() -> None:
    frame = region_frame(4)
    with pytest.raises(InputError, match="margin of 'status' is labeled 'works'"):
        build_rows(frame, ["status"], {}, {"status": ByOutcome(1, STATUS)}, {"status": "works"})
    with pytest.raises(InputError, match="named only once"):
        build_rows(frame, ["status", "status"], {}, {"status": ByOutcome(1, STATUS)})


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
def test_datasets_are_combined_as_if_the_outcome_were_their_column(
    separate: bool, linearisation: Any
) -> None:
    n, m, rng = 90, 4, np.random.default_rng(2)
    frame, strata = region_frame(n), np.arange(n) % 2
    design = SampleDesign(strata.astype(np.int64))
    keys = table_keys(["count", "total", "mean"], OUTCOMES, ["region", "status"])
    estimates = Estimates(
        rows_by_status(frame), design, keys, linearisation=linearisation, population_size=1000.0,
        draws=m, outcomes=OUTCOMES,
    )  # fmt: skip
    found: dict[str, list[tuple[FloatArray, FloatArray]]] = {key[0]: [] for key in keys}
    counts, sizes = [], []
    for number in range(m):
        outcomes, weight = draw(rng, n), rng.uniform(5, 15, n)
        if number == 2:  # nobody in the south is in neither
            outcomes[(frame["region"] == "s") & (outcomes[:, 1] == 2), 1] = 0.0
        pair = (draw(rng, n), rng.uniform(5, 15, n)) if separate else (outcomes, weight)
        estimates.add(SyntheticDataset(number + 1, 1, outcomes, weight, *pair))
        tables = []
        for values, of_weight in ((outcomes, weight), pair):
            text = frame.assign(status=STATUS.labels(values[:, 1]))
            domains = build_domains(
                text, ["region", "status"], {**REGION, "status": STATUS.levels}, {"status": "Any"}
            )
            tables.append({
                key[0]: estimate_domains(
                    domains, design, weight=of_weight, outcome=values[:, 0], statistic=key[0],
                    linearisation=linearisation, population_size=1000.0,
                ) for key in keys
            })  # fmt: skip
            if len(tables) == 1:
                sizes.append(domains.n)
                scaled = weight / (weight.sum() if linearisation == "ratio" else 1.0)
                counts.append(
                    [scaled[(domains.codes == row).any(axis=0)].sum() for row in range(16)]
                )
        for key in keys:
            found[key[0]].append((tables[0][key[0]].estimate, tables[1][key[0]].variance))
    np.testing.assert_array_equal(estimates.fewest, np.min(sizes, axis=0))
    rows = [tuple(row) for row in estimates.rows.table[["region", "status"]].to_numpy()]
    empty, nowhere = rows.index(("s", "neither")), rows.index(("w", "works"))
    size = np.array(counts)
    for key in keys:
        estimate, variance = np.moveaxis(np.array(found[key[0]]), 1, 0)
        if key[0] != "mean":  # a sum over nobody is zero, where somebody could be
            estimate[:, empty], variance[:, empty] = np.nan_to_num([estimate, variance])[..., empty]
        else:  # of all datasets in one file; nobody counts 0 and 0
            total = np.nan_to_num(estimate) * size
            with np.errstate(invalid="ignore"):
                ratio = total.sum(axis=0) / size.sum(axis=0)
                estimate = ratio + (total - ratio * size) / size.mean(axis=0)
            variance[np.isnan(variance)] = np.broadcast_to(
                np.nansum(variance, axis=0) / (m - np.isnan(variance).sum(axis=0)).clip(1),
                variance.shape,
            )[np.isnan(variance)]
        df = float(design.degrees_of_freedom)
        expected = combine(estimate[:, None], variance[:, None], df)
        made = estimates.combined(key)
        for name in ("estimate", "standard_error", "df"):
            np.testing.assert_allclose(
                getattr(made, name), getattr(expected, name), rtol=1e-9, err_msg=name
            )
        assert np.isnan(made.estimate[nowhere])  # no record could be there
        assert np.isfinite(made.estimate[empty])
        assert made.standard_error[empty] > 0


def test_what_a_sample_composes_is_found_for_rows_by_an_outcome() -> None:
    """V_X against the variance, over samples, of what the estimate is expected to be given X.

    Records lie in six cells; given the cell an outcome has a known distribution. A row is a level,
    or a level in a region.
    """
    rng = np.random.default_rng(3)
    n, repeats, r = 240, 400, 8
    share = np.array([0.25, 0.15, 0.2, 0.1, 0.1, 0.2])
    p = rng.dirichlet([1.0, 1.0, 1.0], 6)
    mean, weight_of = rng.uniform(1, 4, (6, 3)), rng.uniform(5, 15, 6)
    region = np.array(["n", "n", "n", "s", "s", "s"])
    keys = [("count", None), ("mean", 0), ("share", 1)]
    truth: dict[str, list[FloatArray]] = {key[0]: [] for key in keys}
    told: dict[str, list[FloatArray]] = {key[0]: [] for key in keys}
    wrong: dict[str, list[FloatArray]] = {key[0]: [] for key in keys}
    design = SampleDesign(np.zeros(n, dtype=np.int64))
    for repeat in range(repeats):
        cell = rng.choice(6, n, p=share)
        expected = _expected(np.bincount(cell, minlength=6), region, p, mean, weight_of)
        for key in keys:
            truth[key[0]].append(expected[key[0]])
        if repeat >= 40:
            continue
        frame = pd.DataFrame({"region": region[cell]})
        estimates = Estimates(
            rows_by_status(frame), design, keys[:2], linearisation="plain", population_size=None,
            draws=2, replicates=r, rule=TotalVariance(public_rows(cell)), outcomes=OUTCOMES,
        )  # fmt: skip
        by_region = Estimates(
            build_domains(frame, ["region"], REGION), design, keys[2:], linearisation="plain",
            population_size=None, draws=2, replicates=r, rule=TotalVariance(public_rows(cell)),
            outcomes=OUTCOMES,
        )  # fmt: skip
        for number in range(2 * r):
            status = (rng.random(n)[:, None] > p[cell].cumsum(axis=1)[:, :2]).sum(axis=1)
            pay = rng.normal(mean[cell, status], 0.3)
            outcomes, weight = np.stack([pay, status], axis=1), weight_of[cell]
            data = SyntheticDataset(
                1 + number // r, 1 + number % r, outcomes, weight, outcomes, weight
            )
            estimates.add(data)
            by_region.add(data)
        for key, made in ((keys[0], estimates), (keys[1], estimates), (keys[2], by_region)):
            told[key[0]].append(_composition(made, key))
            wrong[key[0]].append(made.combined(key).within)
    for name, expected_estimates in truth.items():
        variance = np.var(expected_estimates, axis=0, ddof=1)
        chosen = variance > 1e-12
        ratio = np.mean(told[name], axis=0)[chosen] / variance[chosen]
        # 400 samples and 40 of them: Monte Carlo errors of about 7% and 4% a row; means take a
        # noise of theirs from 16 datasets, which adds a little.
        assert 0.85 < np.median(ratio) < 1.2, name
        assert ratio.min() > 0.6, name
        assert ratio.max() < 1.8, name
        # The variance of a dataset, in which outcomes are drawn as well, is another.
        assert np.median(np.mean(wrong[name], axis=0)[chosen] / variance[chosen]) > 1.3


def _composition(estimates: Estimates, key: Any) -> FloatArray:
    """V_X of all lines of a table, the levels of a row one after the other."""
    found = [
        each._composition.variance(each._unlimited)  # type: ignore[attr-defined]
        for each in estimates._collected[key]
    ]
    return np.stack(found, axis=1).ravel()


def _expected(
    size: Any, region: Any, p: FloatArray, mean: FloatArray, weight: FloatArray
) -> dict[str, FloatArray]:
    """To first order what estimates are given the numbers of records of six cells, by row."""
    count, average, share = [], [], []
    for where in ("", "n", "s", "w"):
        inside = (region == where) | (where == "")
        mass = (size * weight * inside)[:, None] * p  # cells by status
        for status in ((0, 1, 2), (0,), (1,), (2,)):
            n_d = mass[:, status].sum()
            count.append(n_d)
            average.append((mass * mean)[:, status].sum() / max(n_d, 1e-300))
        share += list(mass.sum(axis=0) / max(mass.sum(), 1e-300))
    blank = slice(12, None)
    for values in (count, average):
        values[blank] = [0.0] * 4
    share[9:] = [0.0] * 3
    return {"count": np.array(count), "mean": np.array(average), "share": np.array(share)}
