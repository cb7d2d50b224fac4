"""Histograms counted record by record, every pair of records, and exact probabilities of the noise.

Noise that is half of what it should be is found by the empirical epsilon.
"""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.learned import histogram
from surveysynth.mechanisms.learned.histogram import (
    NoisyHistogram,
    gaussian_variance,
    learned_design,
    noisy_histograms,
    range_facts,
    require_signal,
    true_counts,
    what_is_left,
)
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, Survey
from surveysynth.survey.transforms import BINS, LearnedTransform
from tests.mechanisms.learned.learned_cases import TAX, survey_of

#: Below this a right sampler fails once in 100,000 tests.
RARE = 1e-5


def test_every_record_is_counted_in_its_own_stratum_side_and_bin() -> None:
    survey = survey_of(400)
    design, values = survey.design, survey.confidential.outcome[:, 1].copy()
    values[:2] = [-1e9, 1e12]  # outside the range
    assert design.strata is not None
    counts = true_counts(design.outcomes[1], values, design.strata)
    s = {0: 100.0, 1: 5.0}  # a thousandth of 100,000 and of 5,000
    expected = np.zeros_like(counts)
    for value, stratum in zip(values, design.strata, strict=True):
        if value != 0.0:
            side = int(value < 0)
            place = np.arcsinh(min(abs(value), 1000 * s[side]) / s[side]) / np.arcsinh(1000.0)
            expected[side, stratum, min(int(place * BINS), BINS - 1)] += 1
    assert (counts == expected).all()
    assert counts.sum() == (values != 0.0).sum()


def test_one_record_moves_two_counts_by_one_at_most() -> None:
    """Over all pairs of values: in every part of the range, beyond it, and at the spike."""
    survey = survey_of(60)
    design = survey.design
    assert design.strata is not None
    values, places = survey.confidential.outcome[:, 1].copy(), [0.0, -1e9, -700.0, -3.0, 2.0]
    places += [40.0, 900.0, 5e4, 1e5, 1e12]
    largest = largest_square = 0
    for record in (0, 17):
        counts = {}
        for value in places:
            values[record] = value
            counts[value] = true_counts(design.outcomes[1], values, design.strata)
        for one, other in itertools.combinations(places, 2):
            change = counts[one] - counts[other]
            largest = max(largest, int(np.abs(change).sum()))
            largest_square = max(largest_square, int((change**2).sum()))
    assert (largest, largest_square) == (2, 2)


def test_units_move_counts_by_their_size() -> None:
    survey = survey_of(60)
    values, strata = survey.confidential.outcome[:, 1].copy(), survey.design.strata
    assert strata is not None
    unit = np.flatnonzero(strata == 0)[:4]
    counts = []
    for value in (10.0, 90_000.0):
        values[unit] = value
        counts.append(true_counts(survey.design.outcomes[1], values, strata))
    change = counts[0] - counts[1]
    assert np.abs(change).sum() == 2 * 4
    assert (change**2).sum() == 2 * 4**2
    # The noise that holds for it: rho = sum change^2 / (2 sigma^2).
    rho = Fraction(1, 7)
    assert Fraction(2 * 4**2) / (2 * gaussian_variance(rho, 4)) <= rho
    assert Fraction(2 * 4**2) / (2 * gaussian_variance(rho, 4)) > rho * Fraction(999, 1000)


def test_shares_add_up_to_the_whole_budget_and_no_more() -> None:
    design = survey_of(60).design
    budget = 1.7522430357693985
    found = noisy_histograms(
        design, survey_of(60).confidential, budget, SeededNoise(np.random.default_rng(1)), 3
    )
    spent = [Fraction(2 * 3**2) / (2 * each.variance) for each in found]
    left = Fraction(what_is_left(budget, design.outcomes))
    assert sum(spent) + left <= Fraction(budget)
    assert sum(spent) + left > Fraction(budget) * Fraction(99_999, 100_000)
    shares = [float(each) / budget for each in spent]
    assert shares == pytest.approx([0.07, 0.03], rel=1e-5)


def test_shares_that_leave_nothing_are_an_error() -> None:
    outcomes = [Outcome(each, transform=LearnedTransform(high=9.0, share=0.5)) for each in "ab"]
    with pytest.raises(InputError, match="add up to 1"):
        what_is_left(1.0, outcomes)


def empirical_epsilon(variance: Fraction, times: int, seed: int) -> float:
    """A lower bound on epsilon from the two counts that one record moves, by their own tests.

    The record is in the first of two bins or in the second; who sees the noisy counts guesses by
    their difference. 97.5% bounds on the two kinds of errors at several thresholds.
    """
    source = SeededNoise(np.random.default_rng(seed))
    drawn = np.array(source.draw(variance, 4 * times)).reshape(2, 2, times)
    one, other = drawn[0] + [[1], [0]], drawn[1] + [[0], [1]]
    best = 0.0
    for threshold in range(0, 5):
        hits = int((one[0] - one[1] > threshold).sum())
        alarms = int((other[0] - other[1] > threshold).sum())
        low = stats.beta.ppf(0.025 / 5, hits, times - hits + 1) if hits else 0.0
        high = stats.beta.ppf(1 - 0.025 / 5, alarms + 1, times - alarms)
        best = max(best, math.log(low / high) if low > high else 0.0)
    return best


def test_the_empirical_epsilon_of_gaussian_noise_is_within_its_rho() -> None:
    """At rho the log of hits over false alarms cannot pass rho + 2 sqrt(rho log(1/delta))."""
    rho, delta = 0.2, 1e-3
    right = gaussian_variance(Fraction(rho))
    bound = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
    assert empirical_epsilon(right, 20_000, 2) < bound
    # The squared distance of the two laws is 2 / sigma^2: a quarter of the variance doubles it.
    assert empirical_epsilon(right / 16, 20_000, 2) > bound


def test_histograms_are_written_and_read_and_must_fit() -> None:
    survey = survey_of(200)
    made = noisy_histograms(
        survey.design, survey.confidential, 1.08, SeededNoise(np.random.default_rng(1))
    )
    again = tuple(NoisyHistogram.from_dict(each.to_dict()) for each in made)
    one, other = (learned_design(survey.design, each) for each in (made, again))
    assert [each.transform for each in one.outcomes] == [each.transform for each in other.outcomes]
    assert all(each.learned and each.learned.curves for each in one.outcomes)
    with pytest.raises(InputError, match="expected histograms of 2 x 3 x 64 bins"):
        learned_design(survey.design, made[:1])
    with pytest.raises(InputError, match="Take the file from the release again"):
        NoisyHistogram.from_dict({**made[0].to_dict(), "counts": [[1, 2]]})


def test_amounts_outside_the_range_are_counted_but_not_spikes() -> None:
    survey = survey_of(60)
    values = survey.confidential.outcome.copy()
    values[:3, 1] = [-5001.0, 100_001.0, 0.0]
    confidential = Confidential(values, survey.confidential.sampling_weight)
    before = range_facts(survey.design, survey.confidential)["amounts_outside_range"]
    after = range_facts(survey.design, confidential)["amounts_outside_range"]
    assert before == {"income": 0, "tax": 0}
    assert after == {"income": 0, "tax": 2}


def test_heaps_at_round_numbers_are_counted() -> None:
    """A range to 5 million has steps of 1,000, one to 100,000 steps of 100."""
    survey = survey_of(60)
    values = survey.confidential.outcome.copy()
    values[:, 0] = np.where(np.arange(60) < 45, 31_000.0, 31_001.0)
    values[:, 1] = np.where(np.arange(60) < 20, 0.0, np.where(np.arange(60) < 30, -700.0, 750.0))
    confidential = Confidential(values, survey.confidential.sampling_weight)
    assert range_facts(survey.design, confidential)["amounts_at_round_numbers"] == {
        "income": {"multiples_of": 1000.0, "share": 0.75},
        "tax": {"multiples_of": 100.0, "share": 0.25},  # the spike is not an amount
    }


@pytest.mark.parametrize("by", ["all", None])
def test_one_curve_for_all_by_default(by: str | None) -> None:
    survey = survey_of(200)
    tax = replace(TAX, transform=replace(TAX.transform, by=by))
    design = replace(survey.design, outcomes=(survey.design.outcomes[0], tax))
    made = noisy_histograms(design, survey.confidential, 1.0, None)
    assert [each.counts.shape for each in made] == [(1, 3, BINS), (2, 1, BINS)]
    assert made[1].kind == "none"


def test_the_module_states_its_distance() -> None:
    assert histogram.DISTANCE == 2
    assert isinstance(survey_of(60), Survey)


def test_a_histogram_that_noise_hides_is_refused_before_noise_is_drawn() -> None:
    """Of 300 records, units of 24 have noise of 24 times the SD: only public numbers decide."""
    design = survey_of(300).design
    require_signal(design, 1.0)
    with pytest.raises(RefusedError, match="no transform can be learned from 300 records"):
        require_signal(design, 1.0, 24)
