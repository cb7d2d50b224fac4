"""Laws of noisy counts and moments. Truth: moments of simulated records, normal laws conditioned
the long way, and finite differences; wrong laws are found."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import block_diag

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.amount_law import AmountLaw
from surveysynth.mechanisms.noisy_statistics.posterior.category_law import CategoryLaw, CountLaw
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.survey.outcome import Outcome
from tests.mechanisms.noisy_statistics.law_cases import (
    AGE,
    BENEFIT,
    HEALTH,
    PAY,
    TAX,
    WORKS,
    Known,
    covariances,
    flat_data,
    released,
    with_counts,
    with_data,
)

DATABASES, STEP = 20_000, 1e-5
#: Largest z-score of some hundred moments, and that of a wrong law.
LARGEST, WRONG = 4.5, 8.0

# --- gradients --------------------------------------------------------------------------------


def slope(value: Callable[[float], FloatArray]) -> FloatArray:
    """The derivative (b,) at zero of a function of a step."""
    return np.asarray((value(STEP) - value(-STEP)) / (2.0 * STEP))


def symmetric(rng: np.random.Generator, like: FloatArray) -> FloatArray:
    change = rng.standard_normal(like.shape)
    return np.asarray(change + change.swapaxes(-1, -2))


@pytest.mark.parametrize("grouped", [True, False], ids=["groups", "one group"])
@pytest.mark.parametrize("two_stages", [False, True], ids=["one stage", "two stages"])
def test_gradients_of_amounts(grouped: bool, two_stages: bool) -> None:
    rng = np.random.default_rng(1)
    table = released((AGE, PAY), rng, grouped=grouped, two_stages=two_stages)
    law, means = AmountLaw(table), 0.3 * rng.standard_normal((3, 4, 3))
    covariance = covariances(rng, 3, len(table.cells), 3, 3)
    _, in_means, in_covariance = law(means, covariance)
    for _ in range(3):
        change, other = rng.standard_normal(means.shape), symmetric(rng, covariance)
        found = slope(lambda h, d=change: law(means + h * d, covariance)[0])
        np.testing.assert_allclose(found, (in_means * change).sum((1, 2)), rtol=1e-6, atol=1e-5)
        found = slope(lambda h, d=other: law(means, covariance + h * d)[0])
        expected = (in_covariance * other).sum((1, 2, 3))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    "outcomes", [(WORKS, BENEFIT, AGE), (TAX, WORKS), (HEALTH,)], ids=["kinds", "sides", "levels"]
)
@pytest.mark.parametrize("grouped", [True, False], ids=["groups", "one group"])
def test_gradients_of_categories(outcomes: tuple[Outcome, ...], grouped: bool) -> None:
    rng = np.random.default_rng(2)
    table = released(outcomes, rng, grouped=grouped)
    law, size = CategoryLaw(table), len(table.shape.combinations)
    log_p = np.log(rng.dirichlet(np.ones(size), (3, 4)))
    means = 0.3 * rng.standard_normal((3, 4, size, table.shape.q))
    own = [covariances(rng, 3, len(table.cells), *2 * [p.present.size]) for p in table.patterns]
    _, in_log_p, in_means, in_covariances = law(log_p, means, own)
    for _ in range(2):
        change = rng.standard_normal(means.shape)
        found = slope(lambda h, d=change: law(log_p, means + h * d, own)[0])
        expected = (in_means * change).sum((1, 2, 3))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)
        change = rng.standard_normal(log_p.shape)
        found = slope(lambda h, d=change: law(log_p + h * d, means, own)[0])
        np.testing.assert_allclose(found, (in_log_p * change).sum((1, 2)), rtol=1e-6, atol=1e-5)
        change_of = [symmetric(rng, each) for each in own]
        found = slope(
            lambda h, d=change_of: law(
                log_p, means, [each + h * c for each, c in zip(own, d, strict=True)]
            )[0]
        )
        expected = sum(
            (each * c).sum((1, 2, 3)) for each, c in zip(in_covariances, change_of, strict=True)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)


def parameters_of(table: NoisyTable, ridged: tuple[int, ...] = ()) -> Parameters:
    layout: Layout = replace(table.shape.layout, ridged=ridged)
    return Parameters(layout, table, dict(GeneralLocation.default_priors))


@pytest.mark.parametrize(
    ("outcomes", "ridged", "grouped", "weighted"),
    [((AGE, PAY), (2,), True, True), ((AGE, PAY), (2,), False, True), ((AGE,), (), True, False),
     ((WORKS, BENEFIT, AGE), (2,), True, True), ((WORKS, BENEFIT, AGE), (), False, True),
     ((TAX, AGE), (2,), True, True), ((HEALTH,), (), True, True),
     ((HEALTH, AGE), (2,), False, False)],
)  # fmt: skip
def test_gradients_of_the_posterior(
    outcomes: tuple[Outcome, ...], ridged: tuple[int, ...], grouped: bool, weighted: bool
) -> None:
    """Of every block of coordinates on its own: shrunken columns, levels, deviations, scales."""
    rng = np.random.default_rng(3)
    posterior = parameters_of(released(outcomes, rng, grouped, weighted), ridged)
    x = 0.4 * rng.standard_normal((3, posterior.dimension))
    value, gradient = posterior(x)
    assert np.isfinite(value).all()
    for name, own in posterior.slices.items():
        change = np.zeros_like(x)
        change[:, own] = rng.standard_normal(change[:, own].shape)
        found = slope(lambda h, d=change: posterior(x + h * d)[0])
        expected = (gradient * change).sum(1)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4, err_msg=name)


# --- moments ----------------------------------------------------------------------------------


def moments_by(value: Callable[[FloatArray], float], size: int) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of a normal law, from its log density at some points."""
    axes, zero = np.eye(size), value(np.zeros(size))
    once = np.array([value(each) for each in axes])
    opposite = np.array([value(-each) for each in axes])
    precision = np.diag(-(once + opposite - 2.0 * zero))
    for i in range(size):
        for j in range(i):
            both = value(axes[i] + axes[j])
            precision[i, j] = precision[j, i] = -(both - once[i] - once[j] + zero)
    covariance = np.linalg.inv(precision)
    return covariance @ (0.5 * (once - opposite)), covariance


def z_scores(
    data: FloatArray, mean: FloatArray, covariance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Of means (m,) and of covariances (m, m) of simulated data (databases, m)."""
    off, root = data - mean, np.sqrt(len(data))
    of_means = off.mean(0) / off.std(0) * root
    products = off[:, :, None] * off[:, None]
    of_covariances = (products.mean(0) - covariance) / products.std(0) * root
    return of_means, of_covariances


def far(data: FloatArray, covariance: FloatArray) -> float:
    """The largest z-score of all, of data whose mean should be zero."""
    found = z_scores(data, np.zeros(len(covariance)), covariance)
    return float(max(np.abs(each).max() for each in found))


def standardized(known: Known, data: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Counts less their means, and moments less theirs given counts (databases, m), by the
    densities of laws; and the covariance that they have by these, at expected counts."""
    table, log_p = known.table(1), np.log(known.p)[None]
    own = [known.covariance[np.ix_(p.present, p.present)][None, None] for p in table.patterns]
    expected, rest = (known.sizes[:, None] * known.p).ravel(), data.shape[1] - known.p.size

    def of_counts(counts: FloatArray) -> float:
        return float(CountLaw(with_counts(table, counts)).moments(log_p)[0][0])

    def given(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        def value(moments: FloatArray) -> float:
            law = CategoryLaw(with_data(table, np.concatenate([counts, moments])[None]))
            return float(law(log_p, known.mean[None], own)[0][0])

        return moments_by(value, rest)

    mean, covariance_of_counts = moments_by(of_counts, expected.size)
    np.testing.assert_allclose(mean, expected)
    middle, covariance = given(expected)
    slopes = [given(expected + axis)[0] - middle for axis in np.eye(expected.size)]
    off = data[:, : expected.size] - expected
    left = data[:, expected.size :] - middle - off @ np.array(slopes)
    return np.hstack([off, left]), block_diag(covariance_of_counts, covariance)


def one_pattern() -> Known:
    """Two cells of 12 and 20 records, three categories (one of them rare), two amounts that lie 1.5
    spreads off."""
    rng = np.random.default_rng(4)
    cells, categories = np.indices((2, 3))
    rows = np.stack([np.ones((2, 3)), cells, categories == 1, categories == 2], axis=-1)
    return Known(
        np.array([12, 20]), np.array([[0.5, 0.45, 0.05], [0.3, 0.5, 0.2]]),
        1.5 + 0.4 * rng.standard_normal((2, 3, 2)), covariances(rng, 2, 2),
        np.ones((1, 2), dtype=bool), np.zeros(3, dtype=np.int64), (rows.astype(np.float64),),
        square_sd=10.0,
    )  # fmt: skip


def two_patterns(off: float) -> Known:
    """Four combinations, of which two lack the amount; means lie so many spreads off."""
    rng = np.random.default_rng(5)
    cells, later = np.indices((2, 2))
    rows = np.stack([np.ones((2, 2)), cells, later], axis=-1).astype(np.float64)
    return Known(
        np.array([12, 20]), rng.dirichlet(np.full(4, 4.0), 2),
        off + 0.2 * rng.standard_normal((2, 4, 2)), covariances(rng, 2, 2),
        np.array([[False, True], [True, True]]), np.array([0, 1, 0, 1]), (rows, rows),
    )  # fmt: skip


def test_counts_and_moments_have_those_of_simulated_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One pattern: counts first and moments given them are one joint normal law, exactly."""
    known = one_pattern()
    data = flat_data(known.simulated(DATABASES, np.random.default_rng(6)))
    assert far(*standardized(known, data)) < LARGEST
    halved = replace(known, square_sd=known.square_sd / np.sqrt(2.0))
    assert far(*standardized(halved, data)) > WRONG

    moments = CountLaw.moments

    def wrong(diagonal: float) -> float:
        def other(self: CountLaw, log_p: FloatArray) -> object:
            value, counts = moments(self, log_p)
            variance = diagonal * counts.variance
            return value, replace(counts, variance=variance, factor=0.0 * counts.factor)

        monkeypatch.setattr(CountLaw, "moments", other)
        return far(*standardized(known, data))

    # Counts known once the noisy ones are, and C without its term of rank one.
    assert wrong(0.0) > WRONG
    assert wrong(1.0) > WRONG


@pytest.mark.parametrize(("off", "missed"), [(0.3, 0.09), (1.0, 0.29)])
def test_patterns_are_joined_by_noisy_counts_and_by_nothing_else(
    off: float, missed: float
) -> None:
    """Each pattern with the counts is exact; between patterns, what noise hides of counts is left
    out: correlations of sums about a distant center are this much too near to zero."""
    known = two_patterns(off)
    data, covariance = standardized(
        known, flat_data(known.simulated(DATABASES, np.random.default_rng(7)))
    )
    of_means, of_covariances = z_scores(data, np.zeros(len(covariance)), covariance)
    sizes = [each.sums.size + each.upper.size for each in known.table(1).patterns]
    of = np.repeat([0, 1, 2], [known.p.size, *sizes])
    across = (of[:, None] > 0) & (of > 0) & (of[:, None] != of)
    assert np.abs(of_means).max() < LARGEST
    assert np.abs(of_covariances[~across]).max() < LARGEST
    correlation = np.corrcoef(data.T)
    assert 0.5 * missed < np.abs(correlation[across]).max() < missed


def test_sums_that_do_not_fit_move_no_probabilities_of_known_counts() -> None:
    """With n p in the place of counts a wider law would fit: a gradient of 60 records."""
    known = replace(one_pattern(), count_sd=1e-3)
    rng = np.random.default_rng(9)
    table = with_counts(known.simulated(1, rng), known.sizes[:, None] * known.p)
    (pattern,) = table.patterns
    off = 8.0 * np.sqrt(known.sizes.sum()) * rng.standard_normal(pattern.sums.shape)
    table = replace(table, patterns=(replace(pattern, sums=pattern.sums + off),))
    law = CategoryLaw(table)
    _, in_log_p, _, _ = law(np.log(known.p)[None], known.mean[None], [known.covariance[None, None]])
    # Along what probabilities can do, which add up to one.
    slope = in_log_p[0] - known.p * in_log_p[0].sum(1, keepdims=True)
    assert np.abs(slope).max() < 1.0


def test_sums_and_squares_have_those_of_simulated_records() -> None:
    """T~ exactly normal; Q~ given T~ by Wishart draws about true sums, which are drawn given T~."""
    rng = np.random.default_rng(8)
    known = replace(one_pattern(), of=np.zeros(1, dtype=np.int64), p=np.ones((2, 1)))
    known = replace(known, a=(known.a[0][:, :1, :2],), mean=known.mean[:, :1])
    table, covariance, sizes = known.simulated(1, rng), known.covariance, known.sizes
    a, q = known.a[0][:, 0], 2
    gram = a.T @ (sizes[:, None] * a)
    of_sums, exact = np.kron(gram, covariance), (a.T @ (sizes[:, None] * known.mean[:, 0])).ravel()
    noisy = table.patterns[0].sums[0].ravel()
    spread = of_sums + known.sum_sd**2 * np.eye(noisy.size)
    gain = of_sums @ np.linalg.inv(spread)
    given, left = exact + gain @ (noisy - exact), of_sums - gain @ of_sums
    root = np.linalg.cholesky(left)
    sums = (given + rng.standard_normal((DATABASES, noisy.size)) @ root.T).reshape(-1, 2, q)
    about = np.einsum("dka,kl,dlb->dab", sums, np.linalg.inv(gram), sums)
    rest = stats.wishart(int(sizes.sum()) - 2, covariance).rvs(DATABASES, random_state=rng)
    upper = np.triu_indices(q)
    squares = (about + rest)[:, upper[0], upper[1]]
    deviation = known.square_sd * np.where(upper[0] == upper[1], np.sqrt(2.0), 1.0)
    squares = squares + deviation * rng.standard_normal(squares.shape)

    def value(data: FloatArray, square_sd: float = known.square_sd) -> float:
        whole = np.concatenate([noisy, data])[None]
        own = replace(table, square_variance=square_sd**2)
        law = AmountLaw(with_data(own, whole, counts=False))
        return float(law(known.mean[None, :, 0], covariance[None, None])[0][0])

    mean, variance = moments_by(value, squares.shape[1])
    assert far(squares - mean, variance) < LARGEST
    law = stats.multivariate_normal(exact, spread)
    density = law.logpdf(noisy) + 0.5 * noisy.size * np.log(2.0 * np.pi)
    assert value(mean) == pytest.approx(density - 0.5 * np.linalg.slogdet(variance)[1])
    mean, variance = moments_by(
        lambda data: value(data, known.square_sd / np.sqrt(2.0)), squares.shape[1]
    )
    assert far(squares - mean, variance) > WRONG
