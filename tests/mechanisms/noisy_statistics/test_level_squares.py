"""Squares of the weight by level: whole numbers, their sensitivity, and spreads given them.

Truth: squares written out record by record; the distance of two databases over pairs of records;
moments of cut squares by quadrature; ranks of spreads drawn from their prior, records drawn from
these one by one (a law that takes the noise for none is rejected)."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from surveysynth.mechanisms.noisy_statistics.posterior.level_spreads import (
    COMMON,
    PRIOR,
    cut_square,
    spreads_given,
)
from surveysynth.mechanisms.noisy_statistics.release.level_squares import (
    RADIUS,
    LevelSquares,
    ball,
    exact_squares,
    level_squares,
    noise_variance,
)
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.models.general_location.layout import (
    LEVEL_MEANS,
    LEVEL_SPREADS,
    level_log_variances,
)
from tests.mechanisms.noisy_statistics.location_cases import small_design, two_sided_design

DESIGNS = {"kinds": small_design(), "two sides": two_sided_design()}
RHO = Fraction(1, 7)


def squares_of(name: str, category: np.ndarray, weight: np.ndarray) -> np.ndarray:
    design = DESIGNS[name]
    z = np.zeros((len(weight), design.clipping.q))
    z[:, -1] = weight
    return exact_squares(design.shape, design.clipping, category, z)


def test_squares_are_those_of_records_written_out():
    rng = np.random.default_rng(1)
    design, n = DESIGNS["kinds"], 50
    category = np.column_stack([rng.integers(0, 2, (n, 2)), np.zeros(n, int)])
    weight = rng.normal(0.0, 2.0, n)
    step = ball(design.clipping).step
    expected = [
        sum(
            round(min(max(w, -RADIUS), RADIUS) / step) ** 2
            for w, own in zip(weight, category, strict=True)
            if own[j] == level
        )
        for j in (0, 1)
        for level in (0, 1)
    ]
    found = squares_of("kinds", category, weight)
    assert np.allclose(found.astype(float), np.array(expected, dtype=float), rtol=1e-5)
    assert design.shape.flags.sum() == 2 * len(design.shape.combinations)


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("records", [1, 3])
def test_no_unit_moves_squares_further_than_the_noise_pays_for(name, records):
    design, rng = DESIGNS[name], np.random.default_rng(2)
    sizes = [each.categories for each in design.shape.outcomes]
    variance = noise_variance(design.shape, design.clipping, RHO, records)
    largest = 0.0
    for trial in range(300):
        weights = rng.choice([0.0, 1.0, 2.5, -9.0, 1e200], (2, records))
        levels = rng.integers(0, sizes, (2, records, len(sizes)))
        if trial == 0:  # the worst: at the edge, with another level of every outcome
            weights[:] = 1e9
            levels[0], levels[1] = 0, np.array(sizes) - 1
        one, other = (
            squares_of(name, own, w) for own, w in zip(levels, weights, strict=True)
        )
        moved = sum(int(each) ** 2 for each in one - other)
        largest = max(largest, float(Fraction(moved, 2 * variance)))
    assert 0.999 * float(RHO) < largest <= float(RHO)
    assert largest > float(RHO) / 2 * 1.01  # half of the noise would not do


def test_a_release_has_its_noise_and_comes_back_from_json():
    design, rng = DESIGNS["kinds"], np.random.default_rng(3)
    category = np.zeros((40, 3), dtype=int)
    z = rng.normal(size=(40, 3))
    made = [
        level_squares(
            design.shape, design.clipping, category, z, rho=RHO, source=SeededNoise(own)
        )
        for own in rng.spawn(400)
    ]
    step = ball(design.clipping).step
    exact = exact_squares(design.shape, design.clipping, category, z).astype(float) * step**2
    scaled = np.concatenate([(each.squares - exact) / each.sd for each in made])
    assert stats.kstest(scaled, "norm").pvalue > 1e-3
    assert stats.kstest(scaled * 2**0.5, "norm").pvalue < 1e-6
    again = LevelSquares.from_dict(made[0].to_dict())
    assert again.to_dict() == made[0].to_dict()
    assert made[0].noise == "seeded"


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (0.8, 0.3), (-2.2, 2.0), (4.0, 0.5)])
def test_moments_of_cut_squares_are_integrals(mean, variance):
    def integral(power: int, at: float) -> float:
        density = stats.norm(mean, at**0.5).pdf
        inside = quad(lambda u: u**power * density(u), -RADIUS, RADIUS, epsabs=1e-12)[0]
        return inside + RADIUS**power * (
            1.0 - (stats.norm(mean, at**0.5).cdf(RADIUS) - stats.norm(mean, at**0.5).cdf(-RADIUS))
        )

    square, slope, spread = cut_square(np.array(mean), np.array(variance), RADIUS)
    assert square == pytest.approx(integral(2, variance), rel=1e-8)
    assert spread == pytest.approx(integral(4, variance) - integral(2, variance) ** 2, rel=1e-6)
    h = 1e-4
    numeric = (integral(2, variance + h) - integral(2, variance - h)) / (2 * h)
    assert slope == pytest.approx(numeric, rel=1e-5)


# Four levels of one outcome in two groups of two cells; a share of the weight is explained.
OF, GROUP = np.eye(4), np.array([0, 0, 1, 1])
N = np.array([[300, 150, 80, 20], [200, 200, 50, 30], [100, 20, 200, 10], [400, 90, 30, 15]])
RESIDUAL, EXPLAINED = np.array([0.8, 1.3]), 0.2


def simulated(rng: np.random.Generator, sd: float) -> tuple[np.ndarray, LevelSquares, np.ndarray]:
    """Spreads from their prior, and noisy squares of records drawn with these one by one."""
    h = PRIOR * rng.standard_normal(4)
    mean = 0.5 * rng.standard_normal((4, 4))
    common = 1.0 + COMMON * rng.standard_normal()  # what the draw of all else may be wrong by
    squares = sd * rng.standard_normal(4)
    for cell, group in enumerate(GROUP):
        own = N[group == GROUP].sum(0)
        factor = np.exp(h) * own.sum() / (own @ np.exp(h))
        for level in range(4):
            variance = EXPLAINED + RESIDUAL[group] * factor[level]
            u = mean[cell, level] + variance**0.5 * rng.standard_normal(N[cell, level])
            squares[level] += np.minimum(u * u, RADIUS**2).sum()
    return h, LevelSquares(squares * common, sd, RADIUS, 0.1, 1, "seeded"), mean


def rank_p_value(claimed: float, replications: int = 300) -> float:
    """The p-value of ranks of contrasts of h among draws; claimed: the noise that is told."""
    rng = np.random.default_rng(4)
    ranks = []
    for _ in range(replications):
        h, levels, mean = simulated(rng, 25.0)
        told = LevelSquares(levels.squares, claimed, RADIUS, 0.1, 1, "seeded")
        draws = np.array([
            spreads_given(
                told, OF, GROUP, N.astype(float), np.zeros((4, 4)), mean,
                np.full((4, 4), EXPLAINED), RESIDUAL, rng,
            )[0] for _ in range(19)
        ])  # fmt: skip
        ranks.append((np.diff(draws) < np.diff(h)).sum(0))
    counts = np.bincount(np.concatenate(ranks), minlength=20)
    return float(stats.chisquare(counts).pvalue)


@pytest.mark.slow
def test_spreads_by_level_are_calibrated():
    assert rank_p_value(25.0) > 1e-3


@pytest.mark.slow
def test_noise_taken_for_none_is_rejected():
    assert rank_p_value(1.0) < 1e-4


def test_many_records_tell_their_spreads():
    rng = np.random.default_rng(5)
    h = np.array([0.5, 0.0, -0.4, -0.1])
    n = 2000.0 * N
    factor = np.array([np.exp(h) * n[g == GROUP].sum() / (n[g == GROUP].sum(0) @ np.exp(h))
                       for g in (0, 1)])  # fmt: skip
    mean = np.zeros((4, 4))
    variance = EXPLAINED + RESIDUAL[GROUP, None] * factor[GROUP]
    squares = (n * cut_square(mean, variance, RADIUS)[0]).sum(0)
    found, centre = spreads_given(
        LevelSquares(1.1 * squares, 1.0, RADIUS, 0.1, 1, "seeded"), OF, GROUP, n, 0.0 * n, mean,
        np.full((4, 4), EXPLAINED), RESIDUAL, rng,
    )  # fmt: skip
    assert np.allclose(found - found.mean(), h - h.mean(), atol=0.05)
    # s_g^2 stays the mean over records.
    for g in (0, 1):
        own = n[g == GROUP].sum(0)
        assert own @ np.exp(found - centre[g]) == pytest.approx(own.sum())
    alike = np.zeros(4)
    assert not np.allclose(found - found.mean(), alike, atol=0.2)


def test_records_get_the_spread_of_their_levels():
    theta = {LEVEL_SPREADS: np.array([0.1, 0.2, 1.0, 2.0, 3.0]), LEVEL_MEANS: np.array([0.0, 5.0])}
    raised = level_log_variances(
        theta, (2, 1, 3), np.array([0, 1]), np.array([[1, 0, 2], [0, 0, 0]])
    )
    assert np.allclose(raised, [0.2 + 3.0, 0.1 + 1.0 - 5.0])
    assert level_log_variances({}, (2, 1, 3), np.array([0]), np.array([[1, 0, 2]])) == 0.0
