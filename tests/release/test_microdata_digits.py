"""Synthetic values with a public number of digits. Truth: Python's decimal numbers, and an attacker
who solves for the parameters of a draw with the formula of its smoothed weights."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth.errors import RefusedError
from surveysynth.inference.synthesis import SyntheticDataset, synthesize
from surveysynth.release.microdata import Digits, _steps, to_significant
from surveysynth.release.pipeline import release
from surveysynth.survey.survey import Survey
from tests.guesses import guessed_theta
from tests.surveys import small_survey

AMOUNTS = st.floats(-1e300, 1e300, allow_subnormal=False)


@given(st.lists(AMOUNTS, min_size=1, max_size=20), st.integers(3, 9))
def test_values_are_doubles_next_to_decimal_numbers(values: list[float], digits: int) -> None:
    given_values = np.array(values)
    made = to_significant(given_values, digits)
    for before, after in zip(values, made.tolist(), strict=True):
        shortest = Decimal(repr(after)).normalize()
        assert len(shortest.as_tuple().digits) <= digits
        step = Decimal(10) ** (Decimal(before).adjusted() - digits + 1) if before else Decimal(0)
        assert abs(Decimal(before) - shortest) <= step * Decimal("0.5000001")
    np.testing.assert_array_equal(to_significant(made, digits), made)


def design_of(size: float | None, n: int = 200, **more: Any) -> Any:
    survey = Survey.from_frame(
        small_survey(n=n), weight="weight", by=["field"], predictors="field",
        population_size=size, **({"outcome": "salary"} | more),
    )  # fmt: skip
    return survey.design


@pytest.mark.parametrize(
    ("size", "step"),
    [(30_000.0, "0.001"), (123_456_789.0, "1"), (2e8, "10"), (1234.5, "0.00001"), (1e12, "10000")],
)
def test_weights_are_multiples_of_a_public_step_and_add_up(size: float, step: str) -> None:
    digits, rng = Digits(design_of(size), 6), np.random.default_rng(1)
    assert digits.weight_step == Decimal(step)
    weight = np.exp(1.5 * rng.standard_normal(200))
    weight *= size / weight.sum()
    made = [Decimal(repr(each)) for each in digits.weights(weight).tolist()]
    assert all(each % Decimal(step) == 0 for each in made)
    assert sum(made) == Decimal(repr(size))
    assert min(made) >= Decimal(step)
    np.testing.assert_allclose(np.array(made, float), weight, atol=1.51 * float(step), rtol=0)


def test_who_gets_the_last_step_does_not_tell_the_order_of_the_file() -> None:
    """Equal weights, of which some must be larger: chosen by public columns, not by place."""
    frame = small_survey(n=90).assign(field=np.repeat(["a", "b", "c"], 30))
    for order in (np.arange(90), np.arange(90)[::-1]):
        survey = Survey.from_frame(
            frame.iloc[order], outcome="salary", weight="weight", by=["field"], predictors="field",
            population_size=100_001.0,
        )  # fmt: skip
        made = Digits(survey.design, 3).weights(np.full(90, 100_001.0 / 90))
        larger = survey.design.frame["field"].to_numpy()[made > made.min()]
        assert 0 < len(larger) < 30
        assert set(larger) == {"a"}


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.6])
def test_last_steps_go_to_the_largest_weights(factor: float) -> None:
    """As if all weights were sorted, the order of public columns first."""
    rng = np.random.default_rng(3)
    weight = np.maximum(np.round(np.exp(2.0 + rng.standard_normal(500))), 1.0)
    order = rng.permutation(500)
    size = float(np.rint(factor * weight.sum()))
    made = _steps(weight, size, 0, order)
    ranked = order[np.argsort(-weight[order], kind="stable")]
    missing = int(abs(size - weight.sum()))
    if missing < 500:
        np.testing.assert_array_equal(np.flatnonzero(made != weight), np.sort(ranked[:missing]))
    assert made.sum() == size
    assert made.min() >= 1.0


def test_spikes_bounds_and_domains_stay() -> None:
    outcome = ss.Outcome(
        "salary", "semicontinuous", ss.Transform("log", shift=1.0), spikes=(1_234_567.0,),
        upper=7_654_321.0,
    )  # fmt: skip
    frame = small_survey(n=200)
    design = design_of(None, outcomes=[outcome], outcome=None, n=len(frame))
    values = np.linspace(1.0, 7_654_321.0, 200)
    values[:3] = 1_234_567.0, 7_654_320.9, -0.999999999
    made = Digits(design, 3).outcomes(values[:, None])[:, 0]
    assert made[0] == 1_234_567.0
    assert made.max() <= 7_654_321.0
    made = Digits(design, 6).outcomes(values[:, None])[:, 0]
    assert outcome.transform.violations(made) == 0
    assert made[100] == float(f"{values[100]:.5e}")


def test_an_outcome_far_from_its_origin_is_refused_and_not_spoilt() -> None:
    plain = ss.Outcome("salary", transform=ss.Transform("identity"))
    design = design_of(None, outcomes=[plain], outcome=None)
    values = 1e6 + np.random.default_rng(1).standard_normal((200, 1))
    with pytest.raises(RefusedError, match="'salary' vary by too little for the 6 digits"):
        Digits(design, 6).outcomes(values)
    assert Digits(design, 9).outcomes(values).std() == pytest.approx(values.std(), rel=1e-4)


def attack(design: Any, dataset: SyntheticDataset) -> np.ndarray:
    """Coefficients of log(smoothed weight) on the columns of X and the log outcome, which an FBS
    draw has exactly: w = exp(x b + k log y), scaled to the population size."""
    x = design.matrix.x_cells[design.matrix.cell]
    columns = np.column_stack([x, np.log(dataset.outcome[:, 0])])
    return np.linalg.lstsq(columns, np.log(dataset.weight), rcond=None)[0]


def test_a_draw_shows_to_the_digits_that_are_published_and_no_further() -> None:
    design, rng = design_of(30_000.0, n=400), np.random.default_rng(2)
    model = ss.get_model("fbs").of(design)
    guess = guessed_theta(model, design, 0.5)
    theta = {name: value[None] for name, value in guess.items()}
    first = next(iter(theta))
    theta[first] = theta[first] + 0.3 * rng.standard_normal(theta[first].shape)
    draws = ss.PrivateDraws("fbs", theta, ss.MechanismSettings(epsilon=10.8, m=1))
    (dataset,) = synthesize(
        model, design, draws, replicates_per_draw=1, rng=rng, scale_to=30_000.0
    )
    made = Digits(design, 6).rounded(dataset)
    assert made.separate_pair
    assert made.variance_outcome is made.outcome  # FBS: the same values, with the drawn weights
    assert (made.weight.sum(), made.variance_weight.sum()) == pytest.approx((3e4, 3e4), rel=1e-14)
    assert not np.array_equal(made.variance_weight, made.weight)
    exact = attack(design, dataset)
    # From whole doubles: any other records of the draw give the same, and all others fit.
    half = design.n // 2
    x = np.column_stack(
        [design.matrix.x_cells[design.matrix.cell], np.log(dataset.outcome[:, 0])]
    )
    again = np.linalg.lstsq(x[:half], np.log(dataset.weight[:half]), rcond=None)[0]
    assert np.abs(again - exact).max() < 1e-11
    assert np.abs(x @ exact - np.log(dataset.weight)).max() < 1e-12
    for digits in (6, 4):
        seen = attack(design, Digits(design, digits).rounded(dataset))
        wrong = np.abs(seen - exact)
        assert wrong.max() < 10.0 ** (1 - digits)
        assert wrong.min() > 10.0 ** (-digits - 4)
        assert wrong.max() > 10.0 ** (-digits - 2)


@pytest.mark.usefixtures("stand_in_mechanism")
def test_tables_are_made_from_what_the_microdata_show(
    make_spec: Any, tmp_path: Path
) -> None:
    spec = make_spec(survey="population_size = 30000", tables="microdata_digits = 4")
    release(spec, tmp_path / "out", seed=1)
    folder = tmp_path / "out" / "release"
    frame = pd.read_csv(folder / "microdata" / "draw_01_rep_01.csv", dtype=str)
    assert max(len(each.replace(".", "").strip("0")) for each in frame["salary"]) <= 4
    values = frame["weight"].map(Decimal)
    assert sum(values) == 30000
    assert all(each % Decimal("0.1") == 0 for each in values)
    counts = pd.read_csv(folder / "tables" / "counts.csv")
    files = [pd.read_csv(path) for path in sorted((folder / "microdata").glob("*.csv"))]
    cell = (counts["field"] == "a") & (counts["gender"] == "f")
    by_hand = np.mean([f.query("field == 'a' and gender == 'f'")["weight"].sum() for f in files])
    assert counts.loc[cell, "estimate"].item() == pytest.approx(by_hand, rel=1e-14)
    assert "multiples of 0.1 that add up" in (folder / "README.md").read_text()
    assert '"rounded_to": "4 significant digits"' in (folder / "codebook.json").read_text()
