"""Centres of groups from first sums. Truth: exact sums written out, the proof's distances, and the
same law with the centre of all records in their place."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    Centring,
    GroupSums,
    LocationDesign,
    LocationStatistics,
    LocationSums,
    group_noise,
    location_statistics,
    smoothed_means,
    two_stages,
    within,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import (
    SQUARES,
    group_variances,
    noise_variances,
)
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform
from tests.audit.noise import KnownNoise

X = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
#: Two cells share a group: its rows of A are two.
GROUP = np.array([0, 0, 1])
SIZES = np.array([30, 20, 40])
CELL = np.repeat(np.arange(3), SIZES)
CATEGORY = np.zeros((CELL.size, 1), dtype=np.int64)
SHAPE = LocationShape(X, GROUP, (Outcome("age", transform=Transform("identity")),), weighted=True)
CLIPPING = Clipping(np.array([1.0, 2.0]), np.array([2.0, 0.5]), 4.0)
DESIGN = LocationDesign.optimal(SHAPE, CLIPPING, Centring(2.5, SIZES, np.ones(3)))
BUDGET = Budget.of_rho(0.5, 1e-6)


def survey(seed: int = 1, size: float = 0.2) -> np.ndarray:
    """z of records near the centres of their groups, which lie apart."""
    rng = np.random.default_rng(seed)
    middle = np.array([[1.0, -0.5], [-0.8, 0.7]])[GROUP[CELL]]
    u = middle + size * rng.standard_normal((CELL.size, 2))
    return CLIPPING.centre + CLIPPING.spread * u


def released(z: np.ndarray, source: object, **given: object) -> LocationStatistics:
    return location_statistics(DESIGN, CELL, CATEGORY, z, budget=BUDGET, source=source, **given)


@given(st.floats(1e-8, 1e8))
def test_both_stages_cost_the_whole_and_no_more(rho: float) -> None:
    both = sum(map(Fraction, two_stages(rho)))
    assert 0.999999999 * rho <= both <= Fraction(rho)


def test_first_sums_have_the_noise_of_their_part_and_what_follows_that_of_the_rest() -> None:
    made = released(survey(), SeededNoise(np.random.default_rng(2)))
    first, rest = two_stages(BUDGET.rho)
    ball = Clipping(CLIPPING.centre, CLIPPING.spread, 2.5)
    assert made.first is not None
    assert made.first.sigma == noise_variances(CLIPPING, first).cross_sd(CLIPPING)
    assert made.sigma == group_variances(ball, rest).cross_sd(ball)
    assert made.squares_sd[0] == group_variances(ball, rest).squares_sd(ball)[0, 0]
    assert (made.rho, made.radius, made.first.radius) == (BUDGET.rho, ball.radius, 4.0)
    of_sums, squares = group_noise(CLIPPING, BUDGET.rho, second=2.5)
    assert of_sums == pytest.approx(made.pooled_sigma)
    assert squares[0, 1] == made.squares_sd[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_no_change_of_a_record_passes_the_budget_whatever_the_centres(seed: int) -> None:
    """rho of both stages by their exact sums and their variances, u anywhere; nearly attained."""
    rng = np.random.default_rng(seed)
    first, rest = two_stages(BUDGET.rho)
    second, off = DESIGN.about_groups(), 2.0 * rng.standard_normal((2, 2)) * CLIPPING.spread
    of_first = noise_variances(CLIPPING, first)
    of_second = second.variances(rest, 1.0, 1)
    z, other, record = survey(), survey(), int(rng.integers(CELL.size))
    direction = rng.standard_normal(2) * 10.0 ** rng.integers(0, 4)
    z[record], other[record] = (CLIPPING.centre + sign * direction for sign in (1.0, -1.0))
    spent = 0.0
    sums = [LocationSums(DESIGN), LocationSums(DESIGN)]
    about = [LocationSums(second, off), LocationSums(second, off)]
    for each, values in zip((*sums, *about), (z, other, z, other), strict=True):
        each.add(CELL, SHAPE.combination_of(CATEGORY), values)
    for block in DESIGN.blocks:
        change = [float(each) for each in (sums[0].cross(block) - sums[1].cross(block)).ravel()]
        early = float(np.square(change).sum()) / (2 * of_first.cross)
        assert early <= first
        spent += early
    late = 0.0
    for block in second.blocks:
        change = (about[0].cross(block) - about[1].cross(block)).astype(np.float64)
        squares = (about[0].squares_of(block) - about[1].squares_of(block)).astype(np.float64)
        late += (change**2).sum() / (2 * of_second.cross)
        late += (np.diag(squares) ** 2).sum() / (2 * of_second.diagonal)
        late += np.triu(squares, 1).ravel() @ np.triu(squares, 1).ravel() / (
            2 * of_second.off_diagonal
        )
    assert late <= rest
    spent += late
    assert spent <= BUDGET.rho
    if np.linalg.norm(direction / CLIPPING.spread) > 100.0:  # opposite points of both balls
        (block,) = (each for each in DESIGN.blocks if each.group == GROUP[CELL[record]])
        row = block.noise.exact_rows[list(block.cell).index(CELL[record])]
        # Of 2 + t + 1/t, squares of opposite points add nothing to four.
        assert spent > 0.9 * row @ row * (first + rest * 4 / (2 + SQUARES + 1 / SQUARES))


def table_of(statistics: LocationStatistics) -> NoisyTable:
    return NoisyTable.of(SHAPE, CELL, statistics, np.eye(3))


def test_without_noise_both_stages_are_the_exact_sums() -> None:
    z = survey()
    made = released(z, KnownNoise(lambda: 0.0))
    (pattern,) = table_of(made).patterns
    u = (z - CLIPPING.centre) / CLIPPING.spread
    for number, block in enumerate(DESIGN.blocks):
        own, middle = GROUP[CELL] == block.group, pattern.centers[block.group]
        a = X[CELL[own]] @ block.noise.basis
        rest = u[own] - middle
        found = pattern.sums[block.group, : a.shape[1]]
        np.testing.assert_allclose(found, a.T @ rest, atol=1e-4)
        np.testing.assert_allclose(made.centres[number], CLIPPING.centre + CLIPPING.spread * middle)
        np.testing.assert_allclose(pattern.squares[block.group], rest.T @ rest, atol=1e-4)
        # Closer to where the records of the group are than the common centre, as noise allows.
        assert np.linalg.norm(rest.mean(0)) < 0.7 * np.linalg.norm(u[own].mean(0))


def test_centres_that_are_all_alike_are_another_common_centre() -> None:
    """The same law of means and covariances; forgotten, it is another."""
    z, shift = survey(), np.array([0.6, -0.3])
    plain = released(z, SeededNoise(np.random.default_rng(3)), centres=np.tile(shift, (2, 1)))
    assert plain.first is not None
    # First sums that say nothing, so that those that follow are all there is.
    ignored = replace(plain, first=replace(plain.first, sigma=1e9))
    layout = Layout.of_outcomes(3, SHAPE.outcomes, weighted=True, grouped=True)
    means = 0.5 * np.random.default_rng(4).standard_normal((5, 3, 2))
    covariance = np.broadcast_to(0.3 * np.eye(2) + 0.1, (5, 2, 2, 2))

    def law(statistics: LocationStatistics, means: np.ndarray) -> np.ndarray:
        priors = dict(GeneralLocation.default_priors)
        return Parameters(layout, table_of(statistics), priors).law(means, covariance)[0]

    one = law(ignored, means)
    other = law(replace(plain, first=None), means - shift)
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert np.abs(law(replace(plain, first=None), means) - one).max() > 1.0


def test_means_are_smoothed_by_what_noise_leaves_of_them() -> None:
    means = np.array([[2.0, -1.0], [0.5, 1.0], [-1.0, 0.0]])
    precise = smoothed_means(means, np.full(3, 1e-9), X, np.ones(3))
    np.testing.assert_allclose(precise, means, atol=1e-6)
    nothing = smoothed_means(means, np.full(3, np.inf), X, np.ones(3))
    np.testing.assert_array_equal(nothing, 0.0)
    # An empty group lies where main effects put it.
    two = smoothed_means(means, np.array([1e-9, 1e-9, np.inf]), X, np.array([1e-9, 1e-9, 1.0]))
    np.testing.assert_allclose(two[2], means[0], atol=1e-6)
    inside = within(np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 2.5)
    np.testing.assert_allclose(inside, [[1.5, 2.0], [0.3, 0.4], [0.0, 0.0]])


def test_a_group_without_records_and_any_numbers_have_an_answer() -> None:
    """Warnings are errors here."""
    sizes = np.array([30, 60, 0])
    design = LocationDesign.optimal(SHAPE, CLIPPING, Centring(2.5, sizes, np.ones(3)))
    z = np.where(np.arange(90)[:, None] % 2, 1.7e308, -1.7e308) * np.ones(2)
    made = location_statistics(
        design, np.repeat([0, 1], [30, 60]), CATEGORY, z, budget=BUDGET,
        source=SeededNoise(np.random.default_rng(5)),
    )  # fmt: skip
    assert all(np.isfinite(each).all() for each in (*made.cross, *made.squares, made.centres))


def test_they_come_back_from_files_and_what_does_not_fit_is_refused() -> None:
    made = released(survey(), SeededNoise(np.random.default_rng(6)))
    content = made.to_dict()
    back = LocationStatistics.from_dict(content)
    assert back.to_dict() == content
    assert back.first is not None
    assert isinstance(back.first, GroupSums)
    first = content["first"]
    for wrong in (
        {**first, "centres": first["centres"][:1]},
        {**first, "cross": first["cross"][:1], "centres": first["centres"][:1]},
        {**first, "centres": [[float("nan")] * 2] * 2},
        {key: value for key, value in first.items() if key != "sigma"},
    ):
        with pytest.raises(InputError, match="Noisy statistics"):
            LocationStatistics.from_dict({**content, "first": wrong})
