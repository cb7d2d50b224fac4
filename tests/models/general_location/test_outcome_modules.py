"""Outcomes in modules, simulated.

Truth: simulations of each module by itself, for means and covariances of its outcomes, of how they
go with the weight, and of their units; the normal law of amounts alone, in closed form; residuals
of weights, which go with no outcome. Modules that are independent of the weight, and weights that
are smoothed by the first module alone, are rejected."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.module_parameters import (
    MODULES,
    columns_by_module,
    of_module,
    with_modules,
)
from surveysynth.models.general_location.modules import Modules
from surveysynth.models.units import PSU_COVARIANCE
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    PLAIN,
    SICK,
    TAX,
    WORK,
    draw,
    general_design,
    model_for,
    random_theta,
)

OUTCOMES = (BENEFIT, WORK, INCOME, SICK, TAX)
#: The first says how weights are.
COLUMNS = ((1, 2), (3, 4), (0,))
BY = ("region",)


def part_of(design: PublicDesign, columns: tuple[int, ...]) -> PublicDesign:
    return replace(design, outcomes=tuple(design.outcomes[j] for j in columns))


def made(
    design: PublicDesign, model: GeneralLocation, columns: tuple[tuple[int, ...], ...] = COLUMNS
) -> tuple[Theta, list[Theta]]:
    """One draw of all modules, and of each."""
    thetas = []
    for number, own in enumerate(columns):
        theta = random_theta(model, part_of(design, own), 1, seed=number, size=0.3)
        k = design.matrix.x_cells.shape[1]
        indicators = sum(design.outcomes[j].categories - 1 for j in own)
        # A weight that is nearly normal given x, and goes with amounts.
        theta["coefficients_weight"][:, k : k + indicators] *= 0.5
        theta["coefficients_weight"][:, k + indicators :] += 0.7
        for name in ("2", "2_below"):  # well on their side of the split
            if TAX in part_of(design, own).outcomes:
                theta[f"coefficients_{name}"][:, 0] += 4.0
        thetas.append(theta)
    return draw(with_modules(thetas, columns), 0), [draw(each, 0) for each in thetas]


def h_of(design: PublicDesign, simulated: Simulated) -> FloatArray:
    """Amounts where they are (n, ..), flags of categories, and the log weight last."""
    assert simulated.category is not None
    columns = []
    for j, outcome in enumerate(design.outcomes):
        category = simulated.category[:, j]
        columns += [np.where(category == side, simulated.z[:, j], 0.0) for side in outcome.sides]
        columns += [1.0 * (category == c) for c in range(1, outcome.categories)]
    return np.column_stack([*columns, simulated.z[:, -1]])


def moments(design: PublicDesign, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means (C, H) and covariances (C, H, H) by cell, the weight in its SDs."""
    h = h.copy()
    means, found = [], []
    for c in range(len(design.matrix.x_cells)):
        own = h[design.matrix.cell == c]
        own[:, -1] = (own[:, -1] - own[:, -1].mean()) / own[:, -1].std()
        means.append(own.mean(axis=0))
        found.append(np.cov(own.T))
    return np.array(means), np.array(found)


@pytest.mark.parametrize("by", [(), BY])
def test_every_module_has_its_own_law_and_goes_with_the_weight_as_there(
    by: tuple[str, ...]
) -> None:
    design, model = general_design(240_000, OUTCOMES, regions=2), model_for(by)
    theta, thetas = made(design, model)
    rng = np.random.default_rng(3)
    whole = model.simulate(theta, design, rng)
    assert whole.category is not None
    independent = rng.permuted(np.arange(design.n))
    wrong_by = 0.0
    for own, alone in zip(COLUMNS, thetas, strict=True):
        part = part_of(design, own)
        expected = moments(part, h_of(part, model.simulate(alone, part, rng)))
        here = Simulated(
            whole.z[:, [*own, len(OUTCOMES)]], whole.category[:, list(own)]
        )
        found = moments(part, h_of(part, here))
        scale = np.sqrt(np.einsum("chh->ch", expected[1]))
        off = np.abs(found[0] - expected[0]) / scale
        assert off.max() < 0.025
        pairs = scale[:, :, None] * scale[:, None]
        assert (np.abs(found[1] - expected[1]) / pairs).max() < 0.03
        moved = here.z.copy()
        moved[:, -1] = moved[independent, -1]
        wrong = moments(part, h_of(part, replace(here, z=moved)))
        wrong_by = max(wrong_by, float((np.abs(wrong[1] - expected[1]) / pairs).max()))
    assert wrong_by > 0.2
    first = part_of(design, COLUMNS[0])
    weights = model.simulate(thetas[0], first, rng).z[:, -1]
    for c in range(len(design.matrix.x_cells)):
        own = design.matrix.cell == c
        assert whole.z[own, -1].mean() == pytest.approx(weights[own].mean(), abs=0.03)
        assert whole.z[own, -1].std() == pytest.approx(weights[own].std(), rel=0.02)


AMOUNTS = (INCOME, Outcome("rent", transform=PLAIN), Outcome("age", transform=PLAIN))


def normal_case(n: int) -> tuple[PublicDesign, GeneralLocation, Theta, list[Theta]]:
    """Amounts alone, one a module: (y, v) are normal, with slopes of v on y that add up to much."""
    design, model = general_design(n, AMOUNTS, regions=1), model_for(())
    theta, thetas = made(design, model, ((0,), (1,), (2,)))
    return design, model, theta, thetas


def test_amounts_alone_are_normal_and_independent_given_the_weight() -> None:
    design, model, theta, thetas = normal_case(200_000)
    z = model.simulate(theta, design, np.random.default_rng(1)).z
    k = design.matrix.x_cells.shape[1]
    variance = np.array([each["variance_1"][0] for each in thetas])
    slope = np.array([each["coefficients_weight"][k] for each in thetas])
    of_weight = np.array([each["variance_weight"][0] for each in thetas])
    total = of_weight + slope**2 * variance
    truth = np.diag([*variance, total[0]])
    with_weight = slope * variance * np.sqrt(total[0] / total)
    truth[-1, :-1] = truth[:-1, -1] = with_weight
    for one, other in ((0, 1), (0, 2), (1, 2)):
        product = with_weight[one] * with_weight[other] / total[0]
        truth[one, other] = truth[other, one] = product
    within = z - np.array([z[design.matrix.cell == c].mean(0) for c in (0, 1)])[design.matrix.cell]
    found = within.T @ within / design.n
    size = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    np.testing.assert_allclose(found / size, truth / size, atol=0.012)
    assert np.abs(truth[:-1, :-1] - np.diag(variance)).max() > 0.03
    # E(w | y) of the joint normal law.
    simulated = model.simulate(theta, design, np.random.default_rng(2))
    coefficients = np.linalg.solve(truth[:-1, :-1], truth[:-1, -1])
    mean = np.stack([
        design.matrix.x_cells @ each["coefficients_1"][:k] for each in thetas
    ], axis=-1)[design.matrix.cell]  # fmt: skip
    level = (design.matrix.x_cells @ thetas[0]["coefficients_weight"][:k])[design.matrix.cell]
    expected = level + (simulated.z[:, :-1] - mean) @ coefficients
    left = total[0] - coefficients @ truth[:-1, -1]
    smoothed = model.smooth_weight(theta, design, simulated)
    # By sums over intervals of an eighth of an SD.
    np.testing.assert_allclose(np.log(smoothed), expected + left / 2.0, atol=0.01)


@pytest.mark.parametrize("psus", [0, 400])
def test_what_smoothed_weights_leave_goes_with_no_outcome(psus: int) -> None:
    design, model = general_design(240_000, OUTCOMES, regions=2, psus=psus), model_for(BY)
    theta, thetas = made(design, model)
    theta = {
        name: 0.5 * each if name.endswith(("variance_weight", PSU_COVARIANCE)) else each
        for name, each in theta.items()
    }
    simulated = model.simulate(theta, design, np.random.default_rng(5))
    weight = np.exp(simulated.z[:, -1])

    def largest(smoothed: FloatArray) -> float:
        """Of the means of residuals by cell and their products with outcomes, over errors."""
        off = (weight - smoothed) / smoothed
        h = np.column_stack([np.ones(design.n), h_of(design, simulated)[:, :-1]])
        found = []
        for c in range(len(design.matrix.x_cells)):
            own = design.matrix.cell == c
            score = off[own, None] * (h[own] - (np.arange(h.shape[1]) > 0) * h[own].mean(0))
            found.append(score.mean(0) / h[own].std(0).clip(1e-9, None) * (np.ones(h.shape[1])))
            found[-1][0] = score[:, 0].mean()
        return float(np.abs(found).max())

    assert largest(model.smooth_weight(theta, design, simulated)) < 0.03
    part = part_of(design, COLUMNS[0])
    assert simulated.category is not None
    effects = None
    if psus:
        assert simulated.effects is not None
        size = thetas[0][PSU_COVARIANCE].shape[0]
        effects = simulated.effects[:, :size]
    alone = Simulated(
        simulated.z[:, [*COLUMNS[0], len(OUTCOMES)]], simulated.category[:, list(COLUMNS[0])],
        effects,
    )  # fmt: skip
    assert largest(model.smooth_weight(of_module(theta, 0), part, alone)) > 0.1


def test_effects_of_units_are_those_of_each_module() -> None:
    design, model = general_design(60_000, OUTCOMES, regions=2, psus=8_000), model_for(())
    theta, thetas = made(design, model)
    simulated = model.simulate(theta, design, np.random.default_rng(6))
    assert simulated.effects is not None
    assert design.psu is not None
    place = np.unique(design.psu, return_index=True)[1]
    sizes = [each[PSU_COVARIANCE].shape[0] for each in thetas]
    parts = np.split(simulated.effects[place], np.cumsum(sizes)[:-1], axis=1)
    scale = []
    for own, alone in zip(parts, thetas, strict=True):
        truth = alone[PSU_COVARIANCE]
        size = np.sqrt(np.diag(truth))
        scale.append(own[:, -1] / size[-1])
        assert np.abs(np.cov(own.T) - truth).max() / size.max() ** 2 < 0.06
    np.testing.assert_allclose(scale[1], scale[0])
    np.testing.assert_allclose(scale[2], scale[0])
    # Units that differ in the weight differ in other modules too.
    gain = thetas[1][PSU_COVARIANCE][:-1, -1] / thetas[1][PSU_COVARIANCE][-1, -1]
    found = np.array([np.cov(each, parts[1][:, -1])[0, 1] for each in parts[1][:, :-1].T])
    np.testing.assert_allclose(
        found / np.var(parts[1][:, -1]), gain, atol=0.08
    )


def test_missing_answers_are_filled_within_their_module() -> None:
    outcomes = (replace(SICK, missing=True), WORK, replace(INCOME, missing=True))
    design, model = general_design(60_000, outcomes, regions=1), model_for(())
    theta, thetas = made(design, model, ((1,), (0, 2)))
    rng = np.random.default_rng(8)
    simulated = model.simulate(theta, design, rng)
    filled = model.completed(theta, design, simulated, rng)
    assert simulated.category is not None
    assert filled.category is not None
    lost = simulated.category[:, 0] == outcomes[0].missing_category
    assert 0.05 < lost.mean() < 0.95
    assert not (filled.category[:, 0] == outcomes[0].missing_category).any()
    assert not (filled.category[:, 2] == outcomes[2].missing_category).any()
    np.testing.assert_array_equal(filled.category[:, 1], simulated.category[:, 1])
    np.testing.assert_array_equal(filled.z[:, -1], simulated.z[:, -1])
    np.testing.assert_array_equal(filled.category[~lost, 0], simulated.category[~lost, 0])
    part = part_of(design, (0, 2))
    alone = model.simulate(thetas[1], part, rng)
    again = model.completed(thetas[1], part, alone, rng)
    assert again.category is not None
    here = Simulated(filled.z[:, [0, 2, 3]], filled.category[:, [0, 2]])
    for one, other in zip(moments(part, h_of(part, here)), moments(part, h_of(part, again)),
                          strict=True):  # fmt: skip
        np.testing.assert_allclose(one, other, atol=0.06)


def test_with_public_weights_modules_are_independent() -> None:
    design, model = general_design(50_000, OUTCOMES, regions=1, weighted=False), model_for(())
    thetas = [
        random_theta(model, part_of(design, own), 1, seed=number, size=0.3)
        for number, own in enumerate(COLUMNS)
    ]
    theta = draw(with_modules(thetas, COLUMNS), 0)
    simulated = model.simulate(theta, design, np.random.default_rng(9))
    assert simulated.z.shape == (design.n, len(OUTCOMES))
    assert simulated.category is not None
    for c in (0, 1):
        own = design.matrix.cell == c
        pair = np.cov(simulated.z[own, 2], 1.0 * (simulated.category[own, 3] == 1))
        assert abs(pair[0, 1]) / np.sqrt(pair[0, 0] * pair[1, 1]) < 0.03


def test_parameters_say_which_outcome_is_in_which_module() -> None:
    design, model = general_design(60, OUTCOMES), model_for(BY)
    theta, thetas = made(design, model)
    assert [each.tolist() for each in columns_by_module(theta[MODULES])] == [[1, 2], [3, 4], [0]]
    for number, alone in enumerate(thetas):
        found = of_module(theta, number)
        assert sorted(found) == sorted(alone)
        for name, values in alone.items():
            np.testing.assert_array_equal(found[name], values)
    groups = model.groups(design).cell
    laws = Modules(theta, design, model.grouped, groups, None).laws
    assert [law.design.outcome_names for law in laws] == [
        ("work", "income"), ("sick", "tax"), ("benefit",)
    ]  # fmt: skip


def rare(share: float, ratio: float, sd: float) -> Theta:
    """A yes or no whose yes has ``ratio`` times the weight."""
    return {
        "logit_1": np.array([[np.log(share / (1 - share))], [0.0]]),
        "coefficients_weight": np.array([0.0, 0.0, np.log(ratio)]),
        "variance_weight": np.array([sd * sd]),
    }


def smooth(slope: float, sd: float) -> Theta:
    """An amount that the log weight follows."""
    return {
        "coefficients_1": np.array([1.0, 0.0]), "variance_1": np.array([1.0]),
        "coefficients_weight": np.array([0.0, 0.0, slope]), "variance_weight": np.array([sd * sd]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("share", "ratio", "sd"), [(0.05, 0.25, 0.2), (0.1, 4.0, 0.3), (0.3, 0.3, 0.3)]
)
@pytest.mark.parametrize("first", ["rare", "smooth"])
def test_a_class_that_has_other_weights_keeps_its_share(
    share: float, ratio: float, sd: float, first: str
) -> None:
    """Oversampled on purpose: the weight is then far from normal, in one module alone."""
    n, outcomes = 80_000, (SICK, INCOME)
    design, model = general_design(n, outcomes, regions=1), model_for(())
    order = ((0,), (1,)) if first == "rare" else ((1,), (0,))
    thetas = [rare(share, ratio, sd), smooth(0.3, 0.5)][:: 1 if first == "rare" else -1]
    theta = draw(with_modules(
        [{name: each[None] for name, each in own.items()} for own in thetas], order
    ), 0)  # fmt: skip
    rng = np.random.default_rng(11)
    whole = model.simulate(theta, design, rng)
    assert whole.category is not None
    sick = whole.category[:, 0] == 1
    error = np.sqrt(share * (1 - share) / n)
    assert sick.mean() == pytest.approx(share, abs=4.5 * error)
    assert whole.z[:, 1].mean() == pytest.approx(1.0, abs=4.5 / np.sqrt(n))
    assert whole.z[:, 1].std() == pytest.approx(1.0, rel=0.01)
    # Ranks of the weight go with the answers as in the module alone.
    own = 0 if first == "smooth" else 1
    part = part_of(design, (own,))
    alone = model.simulate(rare(share, ratio, sd) if own == 0 else smooth(0.3, 0.5), part, rng)
    assert alone.category is not None
    pairs = []
    for made_here, place in ((whole, own), (alone, 0)):
        assert made_here.category is not None
        ranks = np.argsort(np.argsort(made_here.z[:, -1])) / n
        answer = made_here.category[:, place] if own == 0 else made_here.z[:, place]
        pairs.append(np.corrcoef(ranks, answer)[0, 1])
    assert pairs[0] == pytest.approx(pairs[1], abs=0.015)
    assert abs(pairs[1]) > 0.1
    # Smoothed weights have the sums of drawn ones, of all and of those who say yes.
    weight, smoothed = np.exp(whole.z[:, -1]), model.smooth_weight(theta, design, whole)
    for chosen in (np.ones(n, dtype=bool), sick, ~sick, whole.z[:, 1] > 1.5):
        off = (weight - smoothed)[chosen]
        assert abs(off.mean()) < 4.5 * off.std() / np.sqrt(off.size)
