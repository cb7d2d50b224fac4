"""Curves of guesses against SciPy's truncated normal law, and their noise by its chi-square."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import surveysynth as ss
from surveysynth import LearnedTransform, Outcome
from surveysynth.api.shell_commands import read_guesses
from surveysynth.errors import InputError
from surveysynth.mechanisms.learned.histogram import NoiseKind
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.release.guessed_curves import SHARES, GuessedCurve, guessed_curve
from tests.mechanisms.learned.learned_cases import TAX, frame_of

INCOME = Outcome("income", transform=LearnedTransform(low=0.0, high=5e6))
GUESS = (15_000.0, 40_000.0)
SPEC = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
strata = "region"
population_size = 60000
[synthesizer]
outcome = "income"
[outcomes.income]
range = [0, 5000000]
[privacy]
mechanism = "{mechanism}"
epsilon = 10.8
[tables]
by = ["region"]
statistics = ["mean"]
"""


def curve_of(
    n: int = 900, budget: Fraction | None = Fraction(1, 20), noise: NoiseKind = "gaussian",
    outcome: Outcome = INCOME, guess: tuple[float, float] = GUESS, strata: int = 1,
) -> GuessedCurve:  # fmt: skip
    return guessed_curve(outcome, np.arange(n) % strata, guess, budget, noise)


def test_the_guess_is_a_normal_law_on_the_axis_of_the_grid() -> None:
    made = curve_of()
    s = 5000.0
    low, high = np.arcsinh(np.array(GUESS) / s)
    middle, sd = 0.5 * (low + high), 0.5 * (high - low)
    far = np.arcsinh(1000.0)
    law = stats.truncnorm(-middle / sd, (far - middle) / sd, middle, sd)
    ends = np.linspace(0.0, far, 65)
    assert made.guessed == pytest.approx(900 * np.diff(law.cdf(ends)), abs=1e-9)
    assert made.quantiles[0] == pytest.approx(s * np.sinh(law.ppf(SHARES)), rel=0.02)
    between = law.cdf(high) - law.cdf(low)
    assert 0.65 < between < 0.72


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_empty_bins_have_the_noise_of_the_mechanism(noise: NoiseKind) -> None:
    budget = Fraction(1, 20)
    made = curve_of(noise=noise, guess=(15_000.0, 25_000.0), strata=3)
    empty = made.guessed < 1e-6
    # Variance 1 / rho of each Gaussian count, 2 b^2 with b = 2 / epsilon of a Laplace one.
    variance = 3 * float(1 / budget if noise == "gaussian" else 2 * (2 / budget) ** 2)
    excess = float((made.noisy[empty] ** 2).sum()) / variance
    count = int(empty.sum())
    spread = 1.0 if noise == "gaussian" else 1.5
    assert count > 20
    assert abs(excess - count) < 4.0 * spread * np.sqrt(2.0 * count)
    assert abs(4.0 * excess - count) > 4.0 * spread * np.sqrt(2.0 * count)  # half of the noise


def test_quantiles_are_closer_with_more_records_and_without_noise() -> None:
    def error(made: GuessedCurve) -> float:
        return float(np.abs(np.log(made.quantiles[1:, 1:-1] / made.quantiles[0, 1:-1])).mean())

    few, many, exact = curve_of(300), curve_of(6000), curve_of(6000, None)
    assert error(few) > 2.0 * error(many) > 2.0 * error(exact)
    assert error(exact) < 0.02
    assert many.learned.sum() == pytest.approx(6000.0)


def test_a_side_of_a_split_is_guessed_in_the_units_of_the_outcome() -> None:
    made = curve_of(3000, None, outcome=TAX, guess=(1000.0, 8000.0))
    assert made.quantiles[1:, 3].mean() == pytest.approx(made.quantiles[0, 3], rel=0.03)
    assert 1000.0 < made.quantiles[0, 3] < 8000.0


@pytest.mark.parametrize("mechanism", ["noisy_statistics", "pseudo_posterior"])
def test_check_draws_the_curve(tmp_path: Path, mechanism: str) -> None:
    frame_of(300).to_csv(tmp_path / "survey.csv", index=False)
    (tmp_path / "spec.toml").write_text(SPEC.format(mechanism=mechanism))
    spec = tmp_path / "spec.toml"
    told = str(ss.check(spec, guesses={"income": GUESS}, time_limit=1))
    lines = told.splitlines()
    at = next(i for i, each in enumerate(lines) if each.startswith("income: the curve of a guess"))
    guess, noisy, learned = (each.partition("|")[2].rstrip("|") for each in lines[at + 1 : at + 4])
    assert len(guess) == len(noisy) == len(learned) == 64
    assert guess != noisy
    assert "two thirds lie between 15,000 and 40,000" in lines[at]
    plain = str(ss.check(spec, time_limit=1))
    assert "--guess income=LOW,HIGH draws the curve" in plain
    # Variances: 1 / (0.1 rho), and of discrete Laplace noise of scale 2 / 1.08.
    q = np.exp(-0.54)
    sd = np.sqrt(2.0 * q) / (1.0 - q)
    if mechanism == "noisy_statistics":
        sd = np.sqrt(10.0 / Budget.of_epsilon(10.8, 1e-6).rho)
    assert f"with noise of SD {sd:.3g} each" in plain


def test_noisy_statistics_read_no_amount_for_it(tmp_path: Path) -> None:
    frame = frame_of(120).assign(income="?", weight="?")
    frame.to_csv(tmp_path / "survey.csv", index=False)
    (tmp_path / "spec.toml").write_text(SPEC.format(mechanism="noisy_statistics"))
    assert "the curve of a guess" in str(
        ss.check(tmp_path / "spec.toml", guesses={"income": GUESS})
    )


@pytest.mark.parametrize(
    ("guesses", "words"),
    [
        ({"incone": GUESS}, "'incone' has no learned transform"),
        ({"income": (40_000.0, 15_000.0)}, "the lower first"),
        ({"income": (-1.0, 15_000.0)}, "from 0 to 5,000,000"),
    ],
)
def test_guesses_that_fit_nothing(
    tmp_path: Path, guesses: dict[str, tuple[float, float]], words: str
) -> None:
    frame_of(60).to_csv(tmp_path / "survey.csv", index=False)
    (tmp_path / "spec.toml").write_text(SPEC.format(mechanism="noisy_statistics"))
    with pytest.raises(InputError, match=words):
        ss.check(tmp_path / "spec.toml", guesses=guesses)


def test_guesses_of_the_command_line() -> None:
    assert read_guesses(["a=1,2", "b=c=-1e3,4.5"]) == {"a": (1.0, 2.0), "b=c": (-1000.0, 4.5)}
    with pytest.raises(InputError, match="expected NAME=LOW,HIGH"):
        read_guesses(["a=1"])
