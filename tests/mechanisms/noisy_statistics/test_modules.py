"""Modules of outcomes: one law of all of them, one budget, tables that stay within a module.

Truth: the moments of every module's own law, by enumeration of all combinations of categories;
fractions, for the budget; what one record can move, measured on the published numbers; files, which
are made again. Modules that add nothing to the weight, and whole budgets, are rejected."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.evaluation.audit.noise import noise_of, published
from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.location.joined import joined
from surveysynth.mechanisms.noisy_statistics.posterior.location.unit_moments import CellMoments
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.module_statistics import ModuleStatistics
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    check_public,
    release_statistics,
    statistics_of,
)
from surveysynth.mechanisms.noisy_statistics.score_noise import score_noise
from surveysynth.mechanisms.noisy_statistics.settings import Module, NoisySettings
from surveysynth.mechanisms.score_sums import ScoredColumn, ScoreSums
from surveysynth.models.gaussian.fbs import FBS
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE
from surveysynth.survey.survey import Confidential, PublicDesign
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    SICK,
    TAX,
    WORK,
    draw,
    general_design,
    layout_of,
    model_for,
    random_theta,
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


def laws(
    modules: tuple[Module, ...], model: GeneralLocation, size: float = 0.3
) -> list[Theta]:
    """Draws of each module. Others than the first say little of the weight."""
    found = []
    for number, module in enumerate(modules):
        theta = random_theta(model, module.design, 2, seed=number, size=size)
        core = theta["coefficients_weight"]
        columns = module.design.matrix.x_cells.shape[1]
        core[:, columns:] *= 1.0 if number == 0 else 0.3
        theta["variance_weight"] = theta["variance_weight"] + 2.0 * (number == 0)
        if "slopes_weight" in theta and number:
            theta["slopes_weight"] = 0.1 * theta["slopes_weight"]
        found.append(theta)
    return found


def moments(theta: Theta, model: GeneralLocation, design: PublicDesign) -> CellMoments:
    group = model.groups(design).cell
    shape = LocationShape(design.matrix.x_cells, group, design.outcomes, weighted=True)
    q = layout_of(model, design).q
    return CellMoments.of(theta, shape, np.zeros(q), np.ones(q))


def places(module: Module, design: PublicDesign) -> IntArray:
    """Where the entries of h of a module, the weight last, are among those of all."""
    amounts = [(j, side) for j, each in enumerate(design.outcomes) for side in each.sides]
    flags = [(j, c) for j, each in enumerate(design.outcomes) if each.is_discrete
             for c in range(each.categories)]  # fmt: skip
    own = [k for k, (j, _) in enumerate(amounts) if j in module.columns]
    discrete = [k for k, (j, _) in enumerate(flags) if j in module.columns]
    q = len(amounts) + 1
    return np.array([*own, *(q + k for k in discrete), q - 1])


def own_order(module: Module) -> IntArray:
    """Amounts, flags, and the weight, of the module's own h."""
    q = sum(len(each.sides) for each in module.design.outcomes)
    flags = sum(each.categories for each in module.design.outcomes if each.is_discrete)
    return np.array([*range(q), *range(q + 1, q + 1 + flags), q])


def differences(made: Theta, thetas: list[Theta], design: PublicDesign, model: GeneralLocation,
                modules: tuple[Module, ...]) -> list[FloatArray]:  # fmt: skip
    """How far moments of the joined law are from those of each module, and from independence.

    All but the variance of the weight; its mean is the last."""
    whole = moments(draw(made, 1), model, design)
    first = moments(draw(thetas[0], 1), model, modules[0].design)
    found: list[FloatArray] = []
    for theta, module in zip(thetas, modules, strict=True):
        own, here, there = moments(draw(theta, 1), model, module.design), places(module, design), (
            own_order(module))  # fmt: skip
        found.append(whole.mean[:, here[:-1]] - own.mean[:, there[:-1]])
        covariance = whole.covariance[:, here[:, None], here]
        found.append((covariance - own.covariance[:, there[:, None], there])[:, :-1])
    for one, other in combinations(modules, 2):
        pair = places(one, design)[:-1], places(other, design)[:-1]
        found.append(whole.covariance[:, pair[0][:, None], pair[1]])
    weight = places(modules[0], design)[-1]
    found.append(whole.mean[:, weight] - first.mean[:, own_order(modules[0])[-1]])
    return found


@pytest.mark.parametrize("by", [(), ("region", "sex")])
def test_the_law_of_all_outcomes_has_the_moments_of_every_module(by: tuple[str, ...]) -> None:
    design, model = design_of(ridged=True), model_for(by)
    modules = SETTINGS.modules_of(design)
    thetas = laws(modules, model)
    made = joined([dict(each) for each in thetas], modules, model, design)
    assert sorted(made) == sorted(random_theta(model, design, 1))
    for name, like in random_theta(model, design, 2).items():
        assert made[name].shape == like.shape, name
    for each in differences(made, thetas, design, model, modules):
        np.testing.assert_allclose(each, 0.0, atol=1e-12)
    wrong = {**made, "coefficients_weight": made["coefficients_weight"].copy()}
    wrong["coefficients_weight"][:, design.matrix.x_cells.shape[1] :] = 0.0
    moved = differences(wrong, thetas, design, model, modules)
    assert max(np.abs(each).max() for each in moved) > 0.05


def off_variance(made: Theta, thetas: list[Theta], design: PublicDesign,
                 model: GeneralLocation, modules: tuple[Module, ...]) -> FloatArray:  # fmt: skip
    """Variance of the weight by cell, all outcomes unknown, less that of the first module."""
    whole = moments(draw(made, 1), model, design).covariance
    first = moments(draw(thetas[0], 1), model, modules[0].design).covariance
    weight, own = places(modules[0], design)[-1], own_order(modules[0])[-1]
    return np.asarray(whole[:, weight, weight] - first[:, own, own])


@pytest.mark.parametrize("by", [(), ("region",), ("region", "sex")])
def test_the_variance_of_the_weight_is_that_of_the_first_module_in_a_group(
    by: tuple[str, ...]
) -> None:
    design, model = design_of(ridged=True), model_for(by)
    modules = SETTINGS.modules_of(design)
    thetas = laws(modules, model)
    made = joined(thetas, modules, model, design)
    size, group = np.bincount(design.matrix.cell), model.groups(design).cell
    off = size * off_variance(made, thetas, design, model, modules)
    np.testing.assert_allclose(np.bincount(group, off), 0.0, atol=1e-9 * size.sum())
    wrong = {**made, "variance_weight": np.broadcast_to(
        thetas[0]["variance_weight"], made["variance_weight"].shape)}  # fmt: skip
    assert size @ off_variance(wrong, thetas, design, model, modules) > 0.01 * size.sum()


def test_a_formula_without_all_cells_keeps_the_means_of_its_columns() -> None:
    """Main effects alone: X'(E w of all) is X'(E w of the first module)."""
    design, model = design_of(), model_for(())
    modules = SETTINGS.modules_of(design)
    thetas = laws(modules, model)
    found = differences(joined(thetas, modules, model, design), thetas, design, model, modules)[-1]
    size, x = np.bincount(design.matrix.cell), design.matrix.x_cells
    assert np.abs(found).max() > 1e-4
    np.testing.assert_allclose(x.T @ (size * found), 0.0, atol=1e-9 * size.sum())


def test_where_modules_say_too_much_of_the_weight_a_tenth_of_its_variance_stays() -> None:
    design, model = design_of(ridged=True), model_for(("region",))
    modules = SETTINGS.modules_of(design)
    thetas = laws(modules, model)
    for theta in thetas[1:]:
        theta["slopes_weight"] = theta["slopes_weight"] + 5.0
    made = joined(thetas, modules, model, design)
    left = made["variance_weight"] / thetas[0]["variance_weight"]
    np.testing.assert_allclose(left, 0.1)
    # Counts stay: mean and variance of the weight are those of the first module.
    found = differences(made, thetas, design, model, modules)
    np.testing.assert_allclose(found[-1], 0.0, atol=1e-12)
    size, region = np.bincount(design.matrix.cell), model.groups(design).cell
    off = size * off_variance(made, thetas, design, model, modules)
    np.testing.assert_allclose(np.bincount(region, off), 0.0, atol=1e-9 * size.sum())


def test_effects_of_units_are_those_of_modules() -> None:
    design, model = design_of(ridged=True, psus=40), model_for(())
    modules = SETTINGS.modules_of(design)
    thetas = [random_theta(model, module.design, 2, seed=9) for module in modules]
    for theta in thetas[1:]:
        theta[PSU_COVARIANCE][:, -1, :-1] *= 0.2
        theta[PSU_COVARIANCE][:, :-1, -1] *= 0.2
    made = joined(thetas, modules, model, design)[PSU_COVARIANCE]
    layout = layout_of(model, design)
    assert made.shape == (2, layout.amount_effects.stop, layout.amount_effects.stop)
    assert np.linalg.eigvalsh(made).min() > 0.0
    logits = [part.outcome for part in layout.logits for _ in part.own]
    owner = np.array([*logits, *(j for j, _ in layout.amounts)])
    for theta, module in zip(thetas, modules, strict=True):
        there = np.flatnonzero(np.isin(owner, module.columns))
        np.testing.assert_array_equal(
            made[:, there[:, None], there], theta[PSU_COVARIANCE][:, :-1, :-1]
        )
        np.testing.assert_array_equal(made[:, there, -1], theta[PSU_COVARIANCE][:, :-1, -1])
        others = np.flatnonzero(~np.isin(owner, module.columns))
        assert not made[:, there[:, None], others].any()
    np.testing.assert_array_equal(made[:, -1, -1], thetas[0][PSU_COVARIANCE][:, -1, -1])
    for theta in thetas[1:]:
        theta[PSU_COVARIANCE][:, -1, :-1] *= 50.0
        theta[PSU_COVARIANCE][:, :-1, -1] *= 50.0
    assert np.linalg.eigvalsh(joined(thetas, modules, model, design)[PSU_COVARIANCE]).min() > 0.0


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
    with pytest.raises(InputError, match="modules divide outcomes of a general location model"):
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
    bad: list[dict[str, object]] = [{"modules": []}, {"modules": 3}, {**made.to_dict(), "n": 3}]
    for wrong in bad:
        with pytest.raises(InputError, match="Noisy statistics of modules"):
            statistics_of(wrong)


def test_the_first_module_decides_on_the_weight() -> None:
    """Of no more than one: what a module after the first says of levels of weights is not used."""
    design, model = design_of(ridged=True), model_for(("region", "sex"))
    modules = SETTINGS.modules_of(design)
    thetas = laws(modules, model)
    made = joined(thetas, modules, model, design)
    k = layout_of(model, modules[1].design).columns
    thetas[1]["coefficients_weight"][:, :k] += 3.0
    again = joined(thetas, modules, model, design)
    for name, values in made.items():
        np.testing.assert_array_equal(values, again[name])


def sums_of(design: PublicDesign, positions: Sequence[int], category: tuple[int, int]) -> ScoreSums:
    """Scores of some columns of z and of a category, arbitrary elsewhere."""
    x, cells = design.matrix.x_cells, len(design.matrix.x_cells)
    columns = [ScoredColumn(place, None, x @ np.full(x.shape[1], 0.2), 0.8) for place in positions]
    columns.append(ScoredColumn(None, category, np.full(cells, 0.3), 0.4))
    pairs = [(j, k) for j in range(len(positions)) for k in range(j + 1)]
    flags = [np.ones((cells, 1))] * len(pairs)
    return ScoreSums(x, columns, pairs, flags, [np.array([0.5])] * len(pairs))


def test_noise_on_scores_is_that_of_the_module_of_their_outcomes() -> None:
    """Columns of z: benefit, income, tax above, tax below, weight; modules in another order."""
    design, model = design_of(400), model_for(("region",))
    made = release_statistics(model, design, records(design, 1), SETTINGS)
    assert isinstance(made, ModuleStatistics)
    noise = score_noise(made, model, design, SETTINGS)
    modules = SETTINGS.modules_of(design)
    cases = [(0, (1, 4), (1, 2), (0, 1), (0, 2)), (1, (2, 3, 4), (3, 1), (0, 1, 2), (0, 1)),
             (2, (0, 4), (0, 1), (0, 1), (0, 1))]  # fmt: skip
    first = LocationShape(
        design.matrix.x_cells, model.groups(design).cell, modules[0].design.outcomes, weighted=True
    )
    np.testing.assert_array_equal(noise.group, first.group)
    for number, positions, category, own, own_category in cases:
        own_sums = sums_of(design, own, own_category)
        alone = score_noise(
            made.modules[number], model, modules[number].design, modules[number].settings
        )
        found = noise.covariance(sums_of(design, positions, category))
        np.testing.assert_allclose(found, alone.covariance(own_sums))
    with pytest.raises(ValueError, match="several modules"):
        noise.covariance(sums_of(design, (0, 1), (1, 2)))
