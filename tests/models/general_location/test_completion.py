"""Missing answers filled by the model. Truth: Bayes' rule written out for two outcomes, the
regression of records that are complete. Rejects the share of all records, which ignores others."""


import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from surveysynth.models.general_location import simulate
from surveysynth.models.general_location.completion import LEAST_DRAWS, steadied
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralFBP, GeneralFBS
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform
from tests.models.general_location.general_cases import (
    draw,
    general_design,
    model_for,
    random_theta,
)

PLAIN = Transform("identity")
SICK = Outcome("sick", "binary", missing=True)
INCOME = Outcome("income", transform=PLAIN, missing=True)
TAX = Outcome("tax", "semicontinuous", transform=PLAIN, spikes=(0.0,), missing=True)
WORK = Outcome("work", "categorical", levels=("none", "part", "full"), missing=True)
BOUNDED = Outcome("share", transform=PLAIN, lower=0.0, upper=1.0, missing=True)


@pytest.mark.parametrize("outcome", [SICK, INCOME, TAX, WORK, BOUNDED], ids=lambda each: each.name)
def test_a_missing_answer_is_the_last_category(outcome: Outcome) -> None:
    plain = replace(outcome, missing=False)
    values = np.array([0.0, 1.0, np.nan, 0.0])
    category = outcome.category(values)
    assert category[2] == plain.categories == outcome.categories - 1 == outcome.missing_category
    assert np.array_equal(category[[0, 1, 3]], plain.category(values[[0, 1, 3]]))
    assert outcome.category_names == plain.category_names
    again = outcome.values(category, values)
    assert np.array_equal(again, values, equal_nan=True)
    assert np.array_equal(outcome.regular(values), np.append(
        plain.regular(values[:2]), [False, plain.regular(values[3:])[0]]))  # fmt: skip
    assert outcome.is_discrete
    assert "missing answers as a category" in outcome.public_words
    assert outcome.as_dict()["missing"]


def constant_of(design):
    """Coefficients of X that make a constant of 1."""
    x = design.matrix.x_cells
    return np.linalg.lstsq(x, np.ones(len(x)), rcond=None)[0]


def theta_of(design, **values):
    """Zero coefficients and unit variances, but for what is given by position."""
    layout = Layout.of(design, False)
    theta = {f"logit_{p.name}": np.zeros((p.columns.size, p.own.size)) for p in layout.logits}
    for part in layout.regressions:
        theta[f"coefficients_{part.name}"] = np.zeros(part.width)
        theta[f"variance_{part.name}"] = np.ones(1)
    for name, (places, given) in values.items():
        theta[name][places] = given
    return layout, theta


def test_a_level_is_filled_by_bayes_rule_from_an_amount() -> None:
    """P(sick | z) of records without an answer is p_1 N(z; 1.5, 1) over the sum of both levels."""
    n = 60_000
    design = general_design(n, (SICK, INCOME), weighted=False)
    layout, theta = theta_of(design)
    ones = constant_of(design)
    k = design.matrix.n_columns
    # p(sick) = (0.5, 0.2, 0.3 missing); income is never missing. Means 0, 1.5, and 0.8 if missing.
    theta["logit_1"][:k] = np.outer(ones, np.log([0.2 / 0.5, 0.3 / 0.5]))
    theta["logit_2"][:k, 0] = -40.0 * ones
    (income,) = layout.regressions
    theta["coefficients_2"][np.isin(income.columns, layout.indicators(0))] = [1.5, 0.8]
    model, rng = GeneralFBS(), np.random.default_rng(3)
    simulated = model.simulate(theta, design, rng)
    lost = simulated.category[:, 0] == 2
    assert lost.mean() == pytest.approx(0.3, abs=0.01)
    made = model.completed(theta, design, simulated, rng)
    assert set(np.unique(made.category[:, 0])) == {0, 1}
    assert np.array_equal(made.z, simulated.z)
    assert np.array_equal(made.category[~lost], simulated.category[~lost])
    z = simulated.z[lost, 1]
    sick = made.category[lost, 0] == 1
    expected = 0.2 * stats.norm.pdf(z, 1.5) / (
        0.2 * stats.norm.pdf(z, 1.5) + 0.5 * stats.norm.pdf(z, 0.0)
    )  # fmt: skip
    for low, high in ((-9, 0), (0, 0.8), (0.8, 1.6), (1.6, 9)):
        inside = (z > low) & (z <= high)
        error = 4.0 * 0.5 / math.sqrt(inside.sum())
        assert sick[inside].mean() == pytest.approx(expected[inside].mean(), abs=error)
    # The share of all records with an answer would be wrong by far more than that.
    assert abs(expected[z > 1.6].mean() - 0.2 / 0.7) > 0.2


def test_an_amount_is_filled_given_the_other_amount_and_the_weight() -> None:
    """By regression: mean and variance of the normal law of three columns, inverted by hand."""
    n = 60_000
    income, other = INCOME, Outcome("other", transform=PLAIN, missing=True)
    design = general_design(n, (income, other))
    layout, theta = theta_of(design)
    ones = constant_of(design)
    k = design.matrix.n_columns
    theta["logit_1"][:k, 0] = math.log(0.25 / 0.75) * ones
    theta["logit_2"][:k, 0] = -40.0 * ones
    second, weight = layout.regressions[1], layout.regressions[2]
    theta["coefficients_2"][second.columns.size] = 0.7
    theta["coefficients_weight"][weight.columns.size :] = [-0.5, 0.3]
    theta["variance_weight"][:] = 0.25
    model, rng = GeneralFBS(), np.random.default_rng(4)
    simulated = model.simulate(theta, design, rng)
    lost = simulated.category[:, 0] == 1
    made = model.completed(theta, design, simulated, rng)
    assert not (made.category[:, 0] == 1).any()
    assert np.array_equal(made.z[:, 1:], simulated.z[:, 1:])
    there = ~lost
    # The law of complete records, by least squares on those that were never missing.
    x = np.column_stack([np.ones(there.sum()), made.z[there, 1], made.z[there, 2]])
    fit, *_ = np.linalg.lstsq(x, made.z[there, 0], rcond=None)
    sd = (made.z[there, 0] - x @ fit).std()
    filled = np.column_stack([np.ones(lost.sum()), made.z[lost, 1], made.z[lost, 2]])
    residual = (made.z[lost, 0] - filled @ fit) / sd
    assert abs(residual.mean()) < 4.0 / math.sqrt(lost.sum())
    assert residual.std() == pytest.approx(1.0, abs=0.03)
    again, *_ = np.linalg.lstsq(filled, made.z[lost, 0], rcond=None)
    assert np.allclose(again, fit, atol=0.05)
    assert abs(fit[1]) > 0.3


@pytest.mark.parametrize("outcomes", [(BOUNDED,), (TAX, SICK, WORK), (INCOME, TAX)])
def test_nothing_is_missing_afterwards_and_nothing_else_changes(outcomes) -> None:
    design = general_design(400, outcomes)
    _, theta = theta_of(design)
    rng = np.random.default_rng(2)
    for name, values in theta.items():
        if name.startswith(("logit", "coefficients")):
            theta[name] = values + 0.3 * rng.standard_normal(values.shape)
    model = GeneralFBS()
    simulated = model.simulate(theta, design, rng)
    before = simulated.outcomes(design)
    made = model.completed(theta, design, simulated, rng)
    after = made.outcomes(design)
    lost = np.isnan(before)
    assert lost.any(axis=0).all()
    assert np.isfinite(after).all()
    assert np.array_equal(after[~lost], before[~lost])
    assert np.array_equal(made.z[:, -1], simulated.z[:, -1])
    for column, outcome in zip(after.T, outcomes, strict=True):
        assert not outcome.outside(column).any()


def test_records_of_the_population_are_filled_too() -> None:
    design = replace(general_design(3000, (TAX,)), population_size=1e5)
    _, theta = theta_of(design)
    theta["logit_1"][0] = [0.2, -0.3]
    model, rng = GeneralFBP(), np.random.default_rng(2)
    simulated = model.simulate(theta, design, rng)
    made = model.completed(theta, design, simulated, rng)
    lost = simulated.category[:, 0] == TAX.missing_category
    assert 0.1 < lost.mean() < 0.6
    assert np.isfinite(made.outcomes(design)).all()
    assert np.array_equal(made.z[~lost], simulated.z[~lost])
    spike = made.category[:, 0] == 1
    assert spike[lost].mean() == pytest.approx(spike[~lost].mean(), abs=0.06)


def test_effects_of_missing_answers_have_the_prior_of_interactions() -> None:
    """N(m, v) times N(0, k^2) is N(l m, l v); what is known is kept, what is not is forgotten."""
    design = general_design(100, (INCOME, SICK))
    layout, one = theta_of(design)
    rng, draws = np.random.default_rng(5), 4000
    theta = {name: np.repeat(v[None], draws, axis=0) for name, v in one.items()}
    part = layout.regressions[-1]
    at = int(np.flatnonzero(part.columns == layout.indicators(0)[-1])[0])
    for mean, sd in ((0.5, 0.02), (-3.0, 5.0)):
        theta["coefficients_weight"][:, at] = mean + sd * rng.standard_normal(draws)
        made = steadied(theta, layout, design.outcomes, 0.3)["coefficients_weight"]
        share = 0.09 / (0.09 + sd * sd)
        assert made[:, at].mean() == pytest.approx(share * mean, abs=0.02)
        assert made[:, at].std() == pytest.approx(math.sqrt(share) * sd, rel=0.05)
        rest = np.arange(part.width) != at
        assert np.array_equal(made[:, rest], theta["coefficients_weight"][:, rest])
    few = {name: value[: LEAST_DRAWS - 1] for name, value in theta.items()}
    assert steadied(few, layout, design.outcomes, 0.3) is few


def with_units(design, theta, sick: float, income: float, rng):
    """A sample of which the first half of the records is in units with these effects."""
    layout = Layout.of(design, False)
    effects = np.zeros((design.n, layout.amount_effects.stop))
    first = np.arange(design.n) < design.n // 2
    effects[first, layout.logit_effects[0].start] = sick
    effects[first, layout.amount_effects.start] = income
    model = GeneralFBS()
    simulated = model._simulation(theta, design, effects).sample(rng)
    return first, simulated, model.completed(theta, design, simulated, rng)


def test_a_level_is_filled_given_the_effects_of_its_unit() -> None:
    """Bayes' rule with the log odds and the mean of the unit; without them it is far off."""
    n, sick, income = 80_000, 1.5, -1.0
    design = general_design(n, (SICK, INCOME), weighted=False)
    layout, theta = theta_of(design)
    ones, k = constant_of(design), design.matrix.n_columns
    theta["logit_1"][:k] = np.outer(ones, np.log([0.2 / 0.5, 0.3 / 0.5]))
    theta["logit_2"][:k, 0] = -40.0 * ones
    (part,) = layout.regressions
    theta["coefficients_2"][np.isin(part.columns, layout.indicators(0))] = [1.5, 0.8]
    first, simulated, made = with_units(design, theta, sick, income, np.random.default_rng(3))
    lost = simulated.category[:, 0] == 2
    assert np.array_equal(made.effects, simulated.effects)
    z = simulated.z[:, 1]
    odds = 0.2 / 0.5 * np.exp(sick * first)
    chance = odds * stats.norm.pdf(z - income * first, 1.5) / stats.norm.pdf(z - income * first)
    chance = chance / (1.0 + chance)
    for unit in (first, ~first):
        for low, high in ((-9, 0), (0, 1.0), (1.0, 9)):
            inside = lost & unit & (z > low) & (z <= high)
            error = 4.0 * 0.5 / math.sqrt(inside.sum())
            filled = (made.category[inside, 0] == 1).mean()
            assert filled == pytest.approx(chance[inside].mean(), abs=error)
    without = 0.4 * stats.norm.pdf(z, 1.5) / (0.4 * stats.norm.pdf(z, 1.5) + stats.norm.pdf(z))
    inside = lost & first & (z > 0) & (z <= 1.0)
    assert abs(without[inside].mean() - chance[inside].mean()) > 0.2


@pytest.mark.parametrize("outcome", [INCOME, BOUNDED], ids=["plain", "bounded"])
def test_an_amount_is_filled_given_the_effects_of_its_unit(outcome: Outcome) -> None:
    """Filled amounts of a unit have the law of those that were given in it."""
    design = general_design(60_000, (SICK, outcome))
    layout, theta = theta_of(design)
    ones, k = constant_of(design), design.matrix.n_columns
    theta["logit_1"][:k] = np.outer(ones, np.log([0.5, 0.01]))
    theta["logit_2"][:k, 0] = math.log(0.4 / 0.6) * ones
    theta["coefficients_2"][:k] = 0.4 * ones
    theta["variance_2"][:] = 0.04
    weight = layout.regressions[-1]
    theta["coefficients_weight"][weight.columns.size :] = 0.8
    first, simulated, made = with_units(design, theta, 0.0, 0.25, np.random.default_rng(5))
    lost = simulated.category[:, 1] == 1
    for unit in (first, ~first):
        given, filled = made.z[unit & ~lost, 1], made.z[unit & lost, 1]
        error = 4.0 * given.std() * math.sqrt(1.0 / len(given) + 1.0 / len(filled))
        assert filled.mean() == pytest.approx(given.mean(), abs=error)
        assert filled.std() == pytest.approx(given.std(), rel=0.03)
    assert abs(made.z[first & lost, 1].mean() - made.z[~first & lost, 1].mean()) > 0.15


@pytest.mark.parametrize("psus", [0, 30], ids=["records", "units"])
@pytest.mark.parametrize(
    "outcomes", [(SICK, WORK), (SICK, WORK, INCOME), (WORK, TAX)], ids=["levels", "all", "spikes"]
)
def test_records_that_are_alike_are_computed_once(
    monkeypatch: pytest.MonkeyPatch, outcomes: tuple[Outcome, ...], psus: int
) -> None:
    """The same dataset, filled, and the same weights, as one record after the other."""
    design, model = general_design(3000, outcomes, psus=psus), model_for(["region"])
    theta = draw(random_theta(model.of(design), design, 1), 0)
    made = []
    for few in (0, 10**9):
        monkeypatch.setattr(simulate, "FEW", few)
        own, stream = model.of(design), np.random.default_rng(4)
        sample = own.completed(theta, design, own.simulate(theta, design, stream), stream)
        made.append((sample.category, sample.z, own.smooth_weight(theta, design, sample)))
    np.testing.assert_array_equal(made[0][0], made[1][0])
    for once, each in zip(made[0][1:], made[1][1:], strict=True):
        np.testing.assert_allclose(once, each, rtol=1e-12, atol=1e-12)
