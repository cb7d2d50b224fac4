"""Draws from noisy counts and moments. Truth: the ordinary fit to the records, where noise is next
to nothing; for coefficients about the declared center, the same draws with another center."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.draws import posterior_draws
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import release_statistics
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.sampling.plan import SamplingPlan
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    SICK,
    TAX,
    confidential_of,
    draw,
    general_design,
    model_for,
    random_theta,
)

PLAN = SamplingPlan(16, 60, 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcomes", "by", "weighted"),
    [((SICK, BENEFIT), ("sex",), True), ((BENEFIT,), (), True), ((BENEFIT, INCOME), (), False),
     ((INCOME,), ("sex",), True), ((TAX, INCOME), ("sex",), True)],
    ids=["kinds", "one group", "public weight", "continuous", "two sides"],
)  # fmt: skip
def test_next_to_no_noise_is_the_ordinary_fit(
    outcomes: tuple, by: tuple[str, ...], weighted: bool
) -> None:
    """Means and SDs of parameters, of two samplers that share neither data nor moves."""
    design = replace(general_design(500, outcomes, weighted=weighted), population_size=20_000)
    model = model_for(by)
    theta = draw(random_theta(model, design, 1), 0)
    rng = np.random.default_rng(4)
    survey = confidential_of(design, model.simulate(theta, design, rng, "sample"))
    # Spreads lie below the scale of effects, which is no smaller: the ordinary fit knows no end.
    amounts = {o.name: Declared(0.0, 0.02) for o in outcomes if o.is_amount}
    # Amounts below the split are small here: noise is next to nothing beside a like spread only.
    below = {o.name: Declared(-0.5, 0.002) for o in outcomes if o.split is not None}
    settings = NoisySettings(
        Budget.of_rho(1e13, 1e-6), amounts, Declared(0.0, 0.02), m=1600, radius=3000.0, plan=PLAN,
        declared_below=below,
    )  # fmt: skip
    statistics = release_statistics(
        model, design, survey, settings, SeededNoise(np.random.default_rng(5))
    )
    result = posterior_draws(model, design, statistics, settings, np.random.default_rng(6))
    assert isinstance(result, tuple), result
    ours = result[0].theta
    records = model.records(design, survey)
    plain = model.sample(
        model.compress(records, np.ones(500)), SamplingPlan(16, 500, 1000), np.random.default_rng(7)
    )
    for name, values in plain.items():
        if not name.startswith(("logit_", "coefficients_", "variance_")):
            continue
        truth = values[0].reshape(16_000, -1)
        own = ours[name].reshape(1600, -1)
        # About 300 independent draws of ours, many more of the other.
        gap = np.abs(own.mean(0) - truth.mean(0)) / truth.std(0)
        assert gap.max() < 0.3, (name, gap)
        assert np.abs(np.log(own.std(0) / truth.std(0))).max() < 0.25, name


def test_what_the_prior_says_of_effects_does_not_depend_on_where_amounts_lie() -> None:
    """Another center of the weight moves its intercept, and nothing else.

    With a prior about zero it makes the scale of all effects as large as itself: where a category
    has no records, weights were exp(10) times too large. The same random numbers serve both."""
    design = replace(general_design(120, (SICK, INCOME), weighted=True), population_size=4_800)
    model = model_for(("sex",))
    theta = draw(random_theta(model, design, 1), 0)
    survey = confidential_of(
        design, model.simulate(theta, design, np.random.default_rng(4), "sample")
    )
    settings = NoisySettings(
        Budget.of_rho(20.0, 1e-6), {"income": Declared(0.0, 1.5)}, Declared(0.0, 1.5), m=8,
        plan=PLAN,
    )  # fmt: skip
    noise = SeededNoise(np.random.default_rng(5))
    statistics = release_statistics(model, design, survey, settings, noise)
    moved = replace(statistics, centre=statistics.centre + np.array([0.0, 10.0]))
    found = []
    for each in (statistics, moved):
        drawn = posterior_draws(model, design, each, settings, np.random.default_rng(6))
        assert isinstance(drawn, tuple), drawn
        found.append(drawn[0].theta)
    before, after = found
    intercept = before["coefficients_weight"] * 0.0
    intercept[..., 0] = 10.0
    np.testing.assert_allclose(
        after["coefficients_weight"], before["coefficients_weight"] + intercept, rtol=1e-9
    )
    for name in set(before) - {"coefficients_weight"}:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
