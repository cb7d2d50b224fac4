"""Predictors of a logit with effects of PSUs, as moves change them. Truth: the log-likelihood
written out row by row; its differences."""

import numpy as np
import pytest

from surveysynth.models.general_location.psu_predictors import Point, PsuPredictors
from surveysynth.models.general_location.psu_sums import PsuCounts

CHAINS, P, UNITS = 3, 2, 4
#: Two databases, the second of fewer rows; PSU 2 of the first has one row.
PSUS = ([0, 0, 1, 2, 3, 3, 3], [0, 1, 1, 2, 3])
BATCH = len(PSUS) * CHAINS


def counts_of(c: int) -> list[PsuCounts]:
    rng, made = np.random.default_rng(3), []
    for psu in PSUS:
        x, counts = rng.normal(size=(len(psu), P)), rng.gamma(1.0, size=(len(psu), c + 1))
        made.append(PsuCounts(x, np.array(psu), counts))
    return made


def position(c: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    return rng.normal(size=(BATCH, P, c)), rng.normal(size=(BATCH, UNITS, c))


def value(counts: list[PsuCounts], b: np.ndarray, a: np.ndarray) -> np.ndarray:
    """The log-likelihood (B,), row by row."""
    result = np.zeros(BATCH)
    for chain in range(BATCH):
        own = counts[chain // CHAINS]
        for x, psu, row in zip(own.x, own.psu, own.counts, strict=True):
            odds = np.concatenate([[1.0], np.exp(x @ b[chain] + a[chain, psu])])
            result[chain] += row @ np.log(odds / odds.sum())
    return result


@pytest.fixture(params=[1, 3])
def case(request: pytest.FixtureRequest):
    c = request.param
    counts, (b, a) = counts_of(c), position(c)
    predictors = PsuPredictors(counts, UNITS, CHAINS)
    predictors.begin(b, a)
    return c, counts, predictors, b, a


def same(first: Point, second: Point) -> None:
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_values_are_those_of_the_rows(case):
    _, counts, predictors, b, a = case
    np.testing.assert_allclose(predictors.at.value.ravel(), value(counts, b, a), rtol=1e-12)


def test_slopes_are_differences(case):
    c, counts, predictors, b, a = case
    by_b, by_a = predictors.slopes(predictors.at)
    step = 1e-5
    for slopes, which in ((by_b, 0), (by_a, 1)):
        for i, j in np.ndindex(slopes.shape[1:]):
            up, down = ([b.copy(), a.copy()] for _ in range(2))
            up[which][:, i, j] += step
            down[which][:, i, j] -= step
            wanted = (value(counts, *up) - value(counts, *down)) / (2 * step)
            np.testing.assert_allclose(slopes[:, i, j], wanted, atol=1e-7)
    for k in range(c):
        left = predictors.left(k)
        np.testing.assert_allclose(predictors.by_effects(left), by_a[..., k], rtol=1e-12)
        np.testing.assert_allclose(predictors.by_coefficients(left), by_b[..., k], rtol=1e-12)


def test_a_move_of_one_category_is_the_point_there(case):
    """With a change of coefficients and without, and taken by some of the chains."""
    c, _, predictors, b, a = case
    rng = np.random.default_rng(5)
    for k in range(c):
        for coefficients in (None, rng.normal(size=(BATCH, P))):
            effects, accept = rng.normal(size=(BATCH, UNITS)), rng.random(BATCH) < 0.5
            moved = predictors.moved(k, effects, coefficients)
            there = b.copy(), a.copy()
            there[1][..., k] += effects
            there[0][..., k] += 0.0 if coefficients is None else coefficients
            point = predictors.point(*there)
            same(moved, Point(point.eta[:, :, k], point.odds[:, :, k], *point[2:]))
            left = predictors.left(k, moved)
            wanted = predictors.slopes(point)
            np.testing.assert_allclose(predictors.by_effects(left), wanted[1][..., k], atol=1e-12)
            predictors.take_move(k, accept, moved)
            b, a = (
                np.where(accept[:, None, None], new, old)
                for new, old in zip(there, (b, a), strict=True)
            )
            same(predictors.at, predictors.point(b, a))


def test_some_chains_go_to_a_point(case):
    c, _, predictors, b, a = case
    accept = np.arange(BATCH) % 2 == 0
    other = tuple(0.5 * each for each in position(c))
    predictors.take(accept, predictors.point(*other))
    b, a = (
        np.where(accept[:, None, None], new, old) for new, old in zip(other, (b, a), strict=True)
    )
    same(predictors.at, predictors.point(b, a))


def test_predictors_far_out_do_not_overflow(case):
    """All records are far from certain to have given the first answer, and some have."""
    _, counts, predictors, b, a = case
    far = predictors.point(b, a + 1e6)
    first = np.repeat([each.counts[:, 0].sum() for each in counts], CHAINS)
    assert (far.value.ravel() < -500.0 * first).all()
    assert all(np.isfinite(each).all() for each in (far.value, *predictors.slopes(far)))
