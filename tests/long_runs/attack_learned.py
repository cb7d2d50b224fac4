"""Attacks on whole releases with learned transforms: noisy histograms, and sums under their curves.

Each release of either database draws its own histograms, whose curves its sums then have. All noise
is near normal, so the attacker knows the log-likelihood ratio of everything that is published: of
the histograms, and of the sums given the curves. Nine tenths of the budget go to the histograms of
an amount and of the weight, so that half of their noise shows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.learned import histogram
from surveysynth.mechanisms.learned.histogram import LEARNED, learned_design, noisy_histograms
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics as noisy
from surveysynth.mechanisms.noisy_statistics.release.noise import SystemNoise
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential
from surveysynth.survey.transforms import LearnedTransform
from tests.audit.cases import GENDER, Example
from tests.audit.lines import Case
from tests.audit.noise import flatten, noise_of, published

#: Stated at delta; records; share of the budget for each of two histograms.
STATED, DELTA, N, SHARE = 10.8, 1e-6, 150, 0.45
SEED = 31
SALARY = Outcome("salary", transform=LearnedTransform(low=0.0, high=2e6, share=SHARE))
WEIGHT = LearnedTransform(low=0.5, high=1e5, share=SHARE)


def example() -> tuple[Case, NoisySettings, list[Confidential]]:
    """Return the case, its settings, and two databases that differ in one record."""
    survey = {**GENDER, "weight_transform": WEIGHT}
    case = Example("fbs, learned, attacked", "fbs", (SALARY,), survey, noisy=True).case(N, SEED)
    given, halves = case.survey.confidential, []
    for salary, weight in ((1e3, 1.0), (1.5e6, 5e4)):
        outcome, weights = given.outcome.copy(), np.array(given.sampling_weight)
        outcome[7], weights[7] = salary, weight
        halves.append(Confidential(outcome, weights))
    return case, NoisySettings(Budget.of_epsilon(STATED, DELTA)), halves


@contextmanager
def histogram_noise_over(divisor: float) -> Iterator[None]:
    """Divide the SD of the noise of histograms."""
    right = histogram.gaussian_variance

    def wrong(*given: Any) -> Any:
        return right(*given) / round(divisor**2)

    histogram.gaussian_variance = wrong
    try:
        yield
    finally:
        histogram.gaussian_variance = right


def log_ratios(divisor: float, runs: int) -> tuple[FloatArray, FloatArray]:
    """Return log p(release | first) - log p(release | second) of releases of both, (runs,) each."""
    case, settings, halves = example()
    survey, rho = case.survey, settings.budget.rho
    seen: list[list[float]] = [[], []]
    with histogram_noise_over(divisor):
        sd = noise_of(case.model, survey.design, halves[0], settings, np.random.default_rng(SEED))
        own = (sd.sd > 0) & (sd.copy == np.arange(sd.sd.size))
        for which, own_half in enumerate(halves):
            for _ in range(runs):
                made = noisy_histograms(survey.design, own_half, rho, SystemNoise())
                design = learned_design(survey.design, made)
                sums = noisy.release_statistics(
                    case.model, design, own_half, settings, SystemNoise()
                )
                numbers: list[float] = []
                flatten({LEARNED: [each.to_dict() for each in made], **sums.to_dict()}, numbers, [])
                one, other = (
                    (np.array(numbers) - published(case.model, design, half, settings).exact)[own]
                    / sd.sd[own]
                    for half in halves
                )
                seen[which].append(0.5 * float((other**2 - one**2).sum()))
    return np.array(seen[0]), np.array(seen[1])
