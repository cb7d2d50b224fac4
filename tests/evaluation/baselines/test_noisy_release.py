"""The release of noisy tables: sums by hand, neighbouring surveys, the noise's own distribution."""

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth._support.types import IntArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.evaluation.baselines import noisy_release as module
from surveysynth.evaluation.baselines.noisy_release import (
    DeclaredBounds,
    contributions,
    noisy_release,
)
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform
from tests.surveys import good, make_survey

BOUNDS = DeclaredBounds(weight=(1.0, 100.0), outcomes={"salary": (0.0, 100_000.0)})


def survey(frame: pd.DataFrame | None = None, **changes: Any) -> Survey:
    arguments: dict[str, Any] = {
        "transforms": Transform("identity"), "level_order": {"gender": ["M", "F", "X"]}
    }  # fmt: skip
    return make_survey(frame, **{**arguments, **changes})


def without_noise(exact: IntArray, sensitivity: int, epsilon: Fraction) -> tuple[IntArray, float]:
    return exact, float(epsilon)


def released(of: Survey, bounds: DeclaredBounds = BOUNDS, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "epsilon": 2.0, "statistics": ("count", "total", "mean"), "margin_labels": {},
        "set_shares": None, "noise": without_noise,
    }  # fmt: skip
    return module._release(of, bounds, **{**arguments, **changes})


def test_without_noise_the_tables_are_clipped_sums() -> None:
    frame = good()
    result = released(survey(frame))
    weight = frame["weight"].clip(1, 100)
    total = weight * frame["salary"].clip(0, 100_000)
    assert (frame["salary"] > 100_000).any()
    for (statistic, outcome), table in result.tables.items():
        assert outcome == (None if statistic == "count" else "salary")
        for _, row in table.iterrows():
            inside = pd.Series(True, index=frame.index)
            for name in ("field", "gender"):
                inside &= (row[name] == "All") | (frame[name] == row[name])
            assert row["n"] == inside.sum()
            if not inside.any():
                assert math.isnan(row["estimate"])
                assert row["flag"] == "no sample"
                continue
            sums = {"count": weight[inside].sum(), "total": total[inside].sum()}
            expected = sums.get(statistic, sums["total"] / sums["count"])
            # Half a unit a record: 1e-5 of weight, 10 of weight times salary.
            size = {"count": 5e-6, "total": 5.0, "mean": 10.0 / weight[inside].mean()}
            error = size[statistic] * (1 if statistic == "mean" else inside.sum())
            assert row["estimate"] == pytest.approx(expected, abs=error)
    assert result.epsilon == pytest.approx(2.0, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-9, 1e9), st.floats(-1e12, 1e12)), min_size=8, max_size=8),
    st.tuples(st.floats(1e-9, 1e9), st.floats(-1e12, 1e12)),
    st.floats(0.5, 1e6), st.floats(-1e6, 1e6), st.floats(0.1, 1e6),
)  # fmt: skip
def test_a_replaced_record_changes_one_row_by_the_sensitivity_at_most(
    records: list[tuple[float, float]],
    other: tuple[float, float],
    high: float,
    low: float,
    width: float,
) -> None:
    bounds = DeclaredBounds(weight=(0.0, high), outcomes={"y": (low, low + width)})
    before, after = (
        Survey.from_frame(
            pd.DataFrame(rows, columns=["w", "y"]), outcome="y", weight="w",
            transforms=Transform("identity"),
        )
        for rows in (distinct(records), distinct([other, *records[1:]]))
    )  # fmt: skip
    for outcome in (None, "y"):
        first, sensitivity, unit = contributions(before, bounds, outcome)
        second, same, _ = contributions(after, bounds, outcome)
        assert same == sensitivity
        assert np.abs(first - second).sum() <= sensitivity
        corners = [0.0, high] if outcome is None else [0.0, high * low, high * (low + width)]
        assert sensitivity * unit <= (max(corners) - min(corners)) + unit


def distinct(records: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Eight fixed records besides, without which a survey could be constant and refused."""
    return [*records, *((1.0 + i, float(i * i)) for i in range(8))]


def discrete_laplace_mean_absolute(scale: float) -> float:
    """E|X| of P(x) proportional to exp(-|x| / scale) over whole numbers."""
    p = math.exp(-1.0 / scale)
    return 2 * p / (1 - p**2)


def assert_scale(noise: IntArray, scale: float) -> None:
    expected = discrete_laplace_mean_absolute(scale)
    assert abs(np.abs(noise).mean() / expected - 1) < 4.5 / np.sqrt(noise.size)
    signs = np.sign(noise.astype(float))
    assert abs((signs[1:] * signs[:-1]).mean()) < 4.5 / np.sqrt(noise.size)
    assert abs(signs.mean()) < 4.5 / np.sqrt(noise.size)


def test_opendps_noise_has_the_stated_scale_and_cost() -> None:
    pytest.importorskip("opendp", reason="the extra 'opendp' is not installed")
    epsilon, sensitivity = Fraction(1, 3), 5
    exact = np.full(20_000, 1000, dtype=np.int64)
    noisy, used = module._opendp_noise(exact, sensitivity, epsilon)
    assert noisy.dtype == np.int64
    assert used <= float(epsilon)
    assert used > 0.999 * float(epsilon)
    noise = noisy - exact
    assert_scale(noise, sensitivity / float(epsilon))
    for wrong in (np.rint(1.3 * noise), np.rint(0.7 * noise), np.full_like(noise, noise[0])):
        with pytest.raises(AssertionError):
            assert_scale(wrong.astype(np.int64), sensitivity / float(epsilon))


def test_a_release_with_opendp() -> None:
    pytest.importorskip("opendp", reason="the extra 'opendp' is not installed")
    exact = released(survey()).tables
    result = noisy_release(survey(), BOUNDS, epsilon=30.0, statistics=("count", "mean", "total"))
    assert result.epsilon <= 30.0
    assert result.epsilon > 29.99
    for key, table in result.tables.items():
        full = table["n"] > 0
        off = (table["estimate"] - exact[key]["estimate"])[full] / table["noise_se"][full]
        assert 0.2 < np.sqrt((off**2).mean()) < 3
        assert off.abs().min() > 0
    again = noisy_release(survey(), BOUNDS, epsilon=30.0, statistics=("count", "mean", "total"))
    first, second = (each.tables["count", None]["estimate"] for each in (result, again))
    assert (first != second).all()


def test_the_noise_of_every_row_follows_its_part_of_the_budget() -> None:
    calls: list[tuple[int, Fraction]] = []

    def record(exact: IntArray, sensitivity: int, epsilon: Fraction) -> tuple[IntArray, float]:
        calls.append((sensitivity, epsilon))
        return exact, float(epsilon)

    result = released(survey(), noise=record, set_shares=[1, 1, 1, 5])
    assert sum(part for _, part in calls) == 2
    assert [part for _, part in calls[:4]] == [Fraction(1, 8), Fraction(1, 8), Fraction(1, 8),
                                              Fraction(5, 8)]  # fmt: skip
    table = result.tables["count", None]
    scale = calls[0][0] / (1 / 8) * 1e-5  # the unit: a millionth of 99, rounded down to a power
    assert table["noise_se"][0] == pytest.approx(np.sqrt(2) * scale, rel=1e-6)
    mean, total = result.tables["mean", "salary"], result.tables["total", "salary"]
    by_hand = total["noise_se"] ** 2 + mean["estimate"] ** 2 * table["noise_se"] ** 2
    expected = np.sqrt(by_hand) / table["estimate"]
    np.testing.assert_allclose(mean["noise_se"], expected, rtol=1e-12)


def test_impossible_results_are_told() -> None:
    def large(exact: IntArray, sensitivity: int, epsilon: Fraction) -> tuple[IntArray, float]:
        return exact - 10**12, float(epsilon)

    result = released(survey(), noise=large)
    counts, means = result.tables["count", None], result.tables["mean", "salary"]
    full = counts["n"] > 0
    assert (counts["estimate"][full] < 0).all()
    assert (counts["flag"][full] == "negative").all()
    assert (means["flag"][full] == "no mean").all()
    assert means["estimate"].isna().all()


def test_the_statement_says_what_is_guaranteed() -> None:
    text = released(survey()).statement
    for words in (
        "pure differential privacy with epsilon at most 2", "point estimates", "declared public",
        "weight 1 to 100", "salary 0 to 100000", "leaves out sampling error", "OpenDP",
    ):  # fmt: skip
        assert words in text


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (DeclaredBounds(outcomes=BOUNDS.outcomes), r"bounds\.weight: missing"),
        (DeclaredBounds(weight=(1, 9)), r"bounds\.outcomes\['salary'\]: missing"),
        (DeclaredBounds((9, 1), BOUNDS.outcomes), r"bounds\.weight: expected two finite"),
        (DeclaredBounds((1, 9), {"salary": (0, math.inf)}), r"bounds\.outcomes\['salary'\]: exp"),
        (DeclaredBounds((-1, 9), BOUNDS.outcomes), "weights are not negative"),
        (DeclaredBounds((1, 9), BOUNDS.outcomes, {"count": 0.0}), "a number above zero, got 0"),
        (DeclaredBounds((1, 9), BOUNDS.outcomes, {"count": 1e-15}), "too large in so small a unit"),
    ],
)
def test_without_declared_bounds_it_refuses(bounds: DeclaredBounds, words: str) -> None:
    with pytest.raises(InputError, match=words):
        noisy_release(survey(), bounds, epsilon=1.0)


def test_counts_alone_need_no_bounds_of_outcomes() -> None:
    result = released(survey(), DeclaredBounds(weight=(0, 50)), statistics=("count",))
    assert list(result.tables) == [("count", None)]


def test_other_statistics_and_a_missing_library_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match="must be of count, total, mean, each once, got median"):
        noisy_release(survey(), BOUNDS, epsilon=1.0, statistics=("median",))
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(RefusedError, match=r"pip install 'surveysynth\[opendp\]'"):
        noisy_release(survey(), BOUNDS, epsilon=1.0)


def test_binary_outcomes_are_numbers_and_categorical_ones_left_out() -> None:
    frame = good()
    frame["works"] = np.where((frame["gender"] == "M") | (frame["age"] > 40), "yes", "no")
    outcomes = (
        Outcome("works", "binary", levels=("no", "yes")),
        Outcome("gender_said", "categorical", levels=("F", "M")),
    )
    said = frame.assign(gender_said=frame["gender"])
    of = Survey.from_frame(said, outcomes=outcomes, weight="weight", by="field")
    bounds = DeclaredBounds(weight=(1.0, 100.0), outcomes={"works": (0.0, 1.0)})
    result = released(of, bounds)
    assert set(result.tables) == {("count", None), ("total", "works"), ("mean", "works")}
    weight = frame["weight"].clip(1, 100)
    share = weight[frame["works"] == "yes"].sum() / weight.sum()
    assert result.tables["mean", "works"]["estimate"][0] == pytest.approx(share, rel=1e-4)
    assert "left out: gender_said." in result.statement
    assert "left out" not in released(survey()).statement
