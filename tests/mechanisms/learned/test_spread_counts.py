"""Counts as amounts: the spread over unit intervals, bins, curves, and cells.

Truths: laws of SciPy and NumPy with known probabilities, the sample that a curve is learned from,
and intervals counted by hand.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

import surveysynth as ss
from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.learned import smoothing
from surveysynth.mechanisms.learned.histogram import (
    curve_rows,
    learned_design,
    noisy_histograms,
    range_facts,
    redrawn_designs,
    spread_counts,
    true_counts,
)
from surveysynth.mechanisms.learned.smoothing import expected_counts, smoothed_counts
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.survey.transforms import BINS, LearnedTransform, bin_of, normal_scores
from tests.mechanisms.learned.count_cases import VISITS, count_frame, count_survey

#: Equal shares of a normal law.
NODES = ndtri((np.arange(4000) + 0.5) / 4000)
#: Variance of the noise of a histogram with a tenth of rho = 0.257, epsilon 3.6 at delta 1e-6.
VARIANCE = 1.0 / 0.0257


def with_curve(transform: LearnedTransform, counts: FloatArray) -> LearnedTransform:
    """The transform with the curves of expected counts (H, J)."""
    knots = normal_scores(counts, whole=True)
    return replace(transform, curves=(tuple(map(tuple, knots.tolist())),))


def histogram(transform: LearnedTransform, values: FloatArray) -> FloatArray:
    return np.bincount(bin_of(transform, values), minlength=transform.bins).astype(np.float64)


def counts_of(low: float, high: float) -> LearnedTransform:
    return LearnedTransform(low=low, high=high, whole=True)


def test_bins_end_at_whole_numbers() -> None:
    assert counts_of(0, 20).edges.tolist() == list(range(22))
    assert counts_of(3, 66).bins == BINS
    for low, high in ((0, 64), (0, 365), (-1000, 100_000), (1900, 2030), (5_000_000, 5_000_100)):
        transform = counts_of(low, high)
        edges = transform.edges
        assert transform.bins <= BINS
        assert (edges % 1.0 == 0.0).all()
        assert (np.diff(edges) >= 1).all()
        assert (edges[0], edges[-1]) == (low, high + 1)
        values = np.unique(np.concatenate([edges[:-1], edges[1:] - 1.0]))
        expected = np.searchsorted(edges, values, "right") - 1
        for jitter in (0.0, 0.5, 1.0 - 1e-9):
            assert (bin_of(transform, values + jitter) == expected).all()
        assert bin_of(transform, np.array([low - 9.0, high + 9.0])).tolist() == [
            0, transform.bins - 1
        ]  # fmt: skip


@pytest.mark.parametrize("chances", [(0.6, 0.1, 0.2, 0.05, 0.04, 0.01), (0.02, 0.9, 0.08)])
def test_a_count_has_the_probabilities_of_its_curve(chances: tuple[float, ...]) -> None:
    """P(T^-1(Z) = y) are those of the counts; a number that is rounded has others."""
    transform = with_curve(counts_of(0, len(chances) - 1), 1000.0 * np.array([chances]))
    drawn = transform.inverse(NODES)
    found = np.bincount(drawn.astype(np.int64), minlength=len(chances)) / NODES.size
    assert found == pytest.approx(chances, abs=1e-3)
    place = np.interp(NODES, transform.knots[0], np.linspace(0, len(chances), transform.knots.size))
    rounded = np.bincount(np.round(place).astype(np.int64), minlength=len(chances) + 1) / NODES.size
    assert np.abs(rounded[: len(chances)] - chances).max() > 0.04


def test_scores_of_spread_counts_are_normal_and_those_of_counts_are_not() -> None:
    """Also with 60% at one value; scores of the counts themselves are atoms below their place."""
    rng = np.random.default_rng(5)
    values = rng.poisson(3.0, 20_000) * (rng.random(20_000) > 0.6).astype(np.float64)
    transform = counts_of(0, 20)
    transform = with_curve(transform, np.maximum(histogram(transform, values), 1e-3)[None])
    spread = transform.forward(values + rng.random(values.size))
    assert stats.kstest(spread, "norm").statistic < 0.015
    assert abs(spread.std() - 1.0) < 0.02
    atoms = transform.forward(values)
    assert stats.kstest(atoms, "norm").statistic > 0.3
    # Values come back, wherever in its interval a count was put.
    assert (transform.inverse(spread) == values).all()


def test_a_spread_count_is_in_its_interval_and_nothing_else_moves() -> None:
    survey = count_survey(300)
    outcome = survey.confidential.outcome.copy()
    outcome[:3, 0] = [-2.0, 99.0, np.nan]
    given = replace(survey.confidential, outcome=outcome)
    made = spread_counts(survey.design, given, np.random.default_rng(1))
    assert (made.outcome[:, 1:] == outcome[:, 1:]).all()
    assert made.sampling_weight is given.sampling_weight
    spread = made.outcome[:, 0]
    assert np.floor(spread[:2]).tolist() == [0.0, 40.0]
    assert np.isnan(spread[2])
    assert (np.floor(spread[3:]) == outcome[3:, 0]).all()
    assert stats.kstest(spread[3:] % 1.0, "uniform").pvalue > 1e-3
    # A seed gives the same numbers, whatever the answers: neighbors have the same U.
    other = replace(given, outcome=np.where(np.arange(300)[:, None] == 7, 5.0, outcome))
    again = spread_counts(survey.design, other, np.random.default_rng(1)).outcome[:, 0]
    assert (again[8:] == spread[8:]).all()
    assert again[7] - 5.0 == pytest.approx(spread[7] - outcome[7, 0], abs=1e-12)
    # The operating system gives others every time.
    secret = [spread_counts(survey.design, given, None).outcome[:, 0] for _ in range(2)]
    assert not (secret[0][3:] == secret[1][3:]).any()
    # Without a count nothing is drawn, and the generator stays where it was.
    plain = replace(survey.design, outcomes=survey.design.outcomes[1:])
    values = replace(given, outcome=outcome[:, 1:])
    assert spread_counts(plain, values, None) is values


def test_histograms_of_counts_do_not_depend_on_the_spread_and_move_by_two() -> None:
    survey = count_survey(200)
    rows = curve_rows(survey.design.outcomes[0], survey.design, Fraction(0))
    assert rows.max() == 7  # a curve of each cell
    values = survey.confidential.outcome[:, 0].copy()
    spread = spread_counts(survey.design, survey.confidential, None).outcome[:, 0]
    whole = true_counts(VISITS, values, rows)
    assert whole.shape == (1, 8, 41)
    assert (true_counts(VISITS, spread, rows) == whole).all()
    largest = 0
    for value in (0.0, 1.0, 17.0, 40.0, 41.0, -3.0):
        values[11] = value
        largest = max(largest, int(np.abs(true_counts(VISITS, values, rows) - whole).sum()))
    assert largest == 2
    assert range_facts(survey.design, survey.confidential) == {
        "amounts_outside_range": {"visits": 0}, "amounts_at_round_numbers": {}
    }  # fmt: skip


LAWS = {
    "Poisson 0.5": (lambda rng, n: rng.poisson(0.5, n), 20),
    "Poisson 4": (lambda rng, n: rng.poisson(4.0, n), 40),
    "negative binomial": (lambda rng, n: rng.negative_binomial(0.7, 0.7 / 2.7, n), 60),
    "zeros and Poisson 3": (lambda rng, n: rng.poisson(3.0, n) * (rng.random(n) > 0.6), 30),
    "top code 4": (lambda rng, n: np.minimum(rng.poisson(3.0, n), 4), 4),
    "two modes": (
        lambda rng, n: np.where(rng.random(n) < 0.5, rng.poisson(2, n), rng.poisson(20, n)), 50
    ),
}  # fmt: skip


def distances(name: str, n: int, times: int, *, as_amounts: bool = False) -> FloatArray:
    """Shares of 0, 1, 2 and the mean that a learned curve implies, less the sample's, in its SEs.

    Location and spread of z are those of the sample, as the second stage has them. as_amounts: the
    smoother of amounts, the wrong one.
    """
    draw, high = LAWS[name]
    transform, result = counts_of(0, high), []
    for rng in np.random.default_rng(8).spawn(times):
        values = draw(rng, n).clip(0, high).astype(np.float64)
        noisy = histogram(transform, values) + np.round(
            rng.normal(0.0, np.sqrt(VARIANCE), transform.bins)
        )
        smooth = (
            smoothed_counts(noisy[None], VARIANCE, transform.ends)
            if as_amounts
            else expected_counts(transform, noisy[None], VARIANCE)
        )
        curve = with_curve(transform, smooth)
        z = np.clip(curve.forward(values + rng.random(n)), -3.26, 3.26)
        made = curve.inverse(z.mean() + z.std() * NODES)
        shares = [(values == each).mean() for each in range(3)]
        ses = [np.sqrt(each * (1.0 - each) / n) for each in shares] + [values.std() / np.sqrt(n)]
        found = [(made == each).mean() for each in range(3)]
        result.append((np.array([*found, made.mean()]) - [*shares, values.mean()]) / ses)
    return np.stack(result)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("n", [500, 5000])
def test_counts_of_any_law_come_back(name: str, n: int) -> None:
    apart = distances(name, n, 12)
    assert np.abs(np.median(apart, axis=0)).max() < 1.3
    assert np.sqrt((apart**2).mean(axis=0)).max() < 1.8
    assert abs(np.median(apart[:, 3])) < 0.5


def test_the_smoother_of_amounts_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shrinks the mode away from zero, or the shares beside a peak there, as a concave tail."""
    wrong = distances("zeros and Poisson 3", 500, 12, as_amounts=True)
    assert np.sqrt((wrong**2).mean(axis=0)).max() > 3.0  # 1.8 is the most of the right one
    monkeypatch.setattr(smoothing, "peak_bins", lambda counts, _: counts > np.inf)
    wrong = distances("zeros and Poisson 3", 500, 12, as_amounts=True)
    assert np.abs(np.median(wrong, axis=0)).max() > 2.0


def cell_means(by: str, n: int, times: int) -> FloatArray:
    """Means of counts of 8 cells, by normal laws of scores, less the sample's, in its SEs."""
    result = []
    for seed in range(times):
        rng = np.random.default_rng([4, seed])
        survey = count_survey(n, seed)
        visits = replace(VISITS, transform=replace(VISITS.transform, by=by))
        design = replace(survey.design, outcomes=(visits, *survey.design.outcomes[1:]))
        noisy = noisy_histograms(
            design, survey.confidential, 1.752, SeededNoise(rng)
        )
        design = learned_design(design, noisy)
        spread = spread_counts(design, survey.confidential, rng).outcome[:, 0]
        outcome, values = design.outcomes[0], survey.confidential.outcome[:, 0]
        by_cell = replace(VISITS, transform=replace(VISITS.transform, by="cells"))
        z, cells = outcome.forward(spread), curve_rows(by_cell, design, Fraction(0))
        apart = []
        for cell in range(8):
            there = np.flatnonzero(cells == cell)
            given = outcome.at(np.full(NODES.size, there[0]))
            made = given.inverse(z[there].mean() + z[there].std() * NODES)
            own = values[there]
            apart.append((made.mean() - own.mean()) / (own.std() / np.sqrt(own.size)))
        result.append(apart)
    return np.array(result)


def test_cells_with_means_from_04_to_6_come_back_and_by_one_curve_they_do_not() -> None:
    """U hides where in its interval a count is, so that a shift cannot follow from a common law."""
    right = cell_means("cells", 4000, 6)
    assert np.abs(right.mean(axis=0)).max() < 0.5
    assert np.sqrt((right**2).mean(axis=0)).max() < 0.8
    assert np.abs(cell_means("all", 4000, 6).mean(axis=0)).max() > 1.5


def test_redrawn_curves_differ_in_shape_and_stay_whole() -> None:
    survey = count_survey(800)
    noisy = noisy_histograms(
        survey.design, survey.confidential, 1.752,
        SeededNoise(np.random.default_rng(1)),
    )  # fmt: skip
    design = learned_design(survey.design, noisy)
    drawn = redrawn_designs(design, 4, np.random.default_rng(2))
    made = np.stack([
        each.outcomes[0].at(np.zeros(NODES.size, np.int64)).inverse(NODES) for each in drawn
    ])  # fmt: skip
    assert (made % 1.0 == 0.0).all()
    shares = (made == 0).mean(axis=1)
    assert 0.0 < shares.std() < 0.1


def test_counts_that_are_not_whole_are_an_error() -> None:
    frame = count_frame(60)
    frame["visits"] = frame["visits"] + np.where(np.arange(60) < 3, 0.5, 0.0)
    with pytest.raises(InputError, match="3 records with a value that is not a whole number"):
        ss.Survey.from_frame(frame, outcomes=(VISITS,), weight="weight", by=("region",))
