"""Modules of outcomes: one budget, and the noise of each.

Truth: fractions, for the budget; what one record can move, measured on the published numbers; a
module by itself. Whole budgets are rejected."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.mechanisms.base import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.draws import posterior_draws
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    check_public,
    release_statistics,
    statistics_of,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.gaussian.fbs import FBS
from surveysynth.survey.survey import Confidential, PublicDesign
from tests.audit.noise import noise_of, published
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    SICK,
    TAX,
    WORK,
    general_design,
    model_for,
)

OUTCOMES = (BENEFIT, WORK, INCOME, SICK, TAX)
#: In another order than the survey's; the first says how weights are.
MODULES = (("income", "work"), ("tax", "sick"), ("benefit",))
DECLARED = {each.name: Declared(0.5, 1.0) for each in OUTCOMES if each.is_amount}
SETTINGS = NoisySettings(
    Budget.of_rho(0.7, 1e-6), DECLARED, Declared(0.0, 1.0), declared_below={"tax": Declared(-1, 1)},
    modules=MODULES,
)  # fmt: skip


def design_of(n: int = 600, **given: object) -> PublicDesign:
    return replace(general_design(n, OUTCOMES, **given), population_size=9_000.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("rho", [0.7, 1.0, 0.1 + 0.2])
def test_the_shares_of_the_budget_add_up_to_no_more_than_the_whole(rho: float) -> None:
    settings = replace(SETTINGS, budget=Budget.of_rho(rho, 1e-6))
    made = settings.modules_of(design_of())
    spent = sum(Fraction(each.settings.of_sums(each.design.modelled).rho) for each in made)
    assert Fraction(rho) * Fraction(999, 1000) < spent <= Fraction(rho)
    assert [each.design.outcome_names for each in made] == [
        ("work", "income"), ("sick", "tax"), ("benefit",)
    ]  # fmt: skip
    assert [each.columns for each in made] == [(1, 2), (3, 4), (0,)]


def test_modules_have_each_outcome_once_and_a_model_that_has_them() -> None:
    design = design_of()
    for wrong in (MODULES[:2], (*MODULES, ("work",)), (*MODULES, ("wages",))):
        with pytest.raises(InputError, match="modules must have each of the outcomes"):
            replace(SETTINGS, modules=wrong).modules_of(design)
    with pytest.raises(InputError, match="Noisy statistics need the general location form"):
        check_public(FBS(), design, SETTINGS)


def records(design: PublicDesign, seed: int) -> Confidential:
    """Answers of all kinds, and weights."""
    rng = np.random.default_rng(seed)
    n = design.n
    outcome = np.column_stack([
        np.where(rng.random(n) < 0.4, 0.0, rng.normal(1.0, 1.0, n)),
        rng.integers(0, 3, n), rng.normal(0.5, 1.0, n), rng.integers(0, 2, n),
        np.where(rng.random(n) < 0.2, 0.0, rng.normal(0.3, 1.0, n)),
    ])  # fmt: skip
    return Confidential(outcome, np.exp(rng.normal(0.0, 0.5, n)))


def replaced(given: Confidential, seed: int) -> Confidential:
    """Another first record, as far away as there are."""
    rng = np.random.default_rng(seed)
    assert given.sampling_weight is not None
    outcome, weight = given.outcome.copy(), given.sampling_weight.copy()
    far = 10.0 ** rng.uniform(0.0, 3.0, 3) * rng.choice([-1.0, 1.0], 3)
    outcome[0] = [far[0] * rng.integers(0, 2), rng.integers(0, 3), far[1],
                  rng.integers(0, 2), far[2] * rng.integers(0, 2)]  # fmt: skip
    weight[0] = np.exp(rng.choice([-20.0, 20.0]))
    return Confidential(outcome, weight)


@pytest.mark.parametrize("psus", [0, 40])
def test_one_record_moves_all_modules_by_no_more_than_the_whole_budget(psus: int) -> None:
    design, model = design_of(60, psus=psus), model_for(("region",))
    given, rng = records(design, 1), np.random.default_rng(2)
    noise = noise_of(model, design, given, SETTINGS, rng)
    neighbours = [published(model, design, replaced(given, seed), SETTINGS) for seed in range(25)]
    ratios = [noise.distance(one, other) for one, other in combinations(neighbours, 2)]
    assert 0.5 < max(ratios) < 1.0
    # Every module with the whole budget, and the cost of one stated.
    whole = replace(SETTINGS, modules=())
    content = published(model, design, given, SETTINGS)
    assert content.rho == pytest.approx(SETTINGS.budget.rho)
    own = SETTINGS.modules_of(design)
    spent = 0.0
    for module in own:
        settings = replace(whole, sums=None)
        answers = [module.of(replaced(given, seed)) for seed in range(25)]
        alone = noise_of(model, module.design, module.of(given), settings, rng)
        seen = [published(model, module.design, each, settings) for each in answers]
        spent += max(alone.distance(one, other) for one, other in combinations(seen, 2)) ** 2
    assert spent > 1.0


def test_statistics_come_back_from_their_dictionary() -> None:
    design, model = design_of(60), model_for(("region",))
    made = release_statistics(model, design, records(design, 1), SETTINGS)
    again = statistics_of(made.to_dict())
    assert again.to_dict() == made.to_dict()
    assert made.is_private
    assert statistics_of(made.to_dict()).outcomes == made.outcomes  # type: ignore[union-attr]
    unnamed = [{k: each[k] for k in each if k != "outcomes"} for each in made.to_dict()["modules"]]
    bad: list[dict[str, object]] = [
        {"modules": []}, {"modules": 3}, {**made.to_dict(), "n": 3}, {"modules": unnamed}
    ]  # fmt: skip
    for wrong in bad:
        with pytest.raises(InputError, match="Noisy statistics of modules"):
            statistics_of(wrong)


def test_statistics_of_other_modules_are_refused() -> None:
    design, model = design_of(60), model_for(("region",))
    made = release_statistics(model, design, records(design, 1), SETTINGS)
    other = replace(SETTINGS, modules=MODULES[::-1])
    with pytest.raises(InputError, match="of other modules than"):
        posterior_draws(model, design, made, other, np.random.default_rng(1))
