"""Latent counts and moments by block: exchanges against enumeration, and every sweep against
forward simulation (what is drawn from a law stays so when it is moved given its noisy values)."""

import numpy as np
import pytest
from scipy import special

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    FEW,
    LocationAugmentation,
    PatternLaw,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.latent import (
    exchanged,
    start_counts,
    tournament,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationSums,
    released,
)
from surveysynth.mechanisms.noisy_statistics.release.noise import ApproximateNoise
from surveysynth.sampling.sweeps import Streams
from tests.mechanisms.noisy_statistics.location_cases import (
    Law,
    draw_records,
    known_law,
    small_design,
    small_shape,
)


@pytest.mark.parametrize("players", [1, 2, 3, 6, 7])
def test_everybody_meets_everybody_once(players: int) -> None:
    met = [
        tuple(sorted(pair)) for first, second in tournament(players)
        for pair in zip(first, second, strict=True)
    ]  # fmt: skip
    assert sorted(met) == [(a, b) for a in range(players) for b in range(a + 1, players)]
    for first, second in tournament(players):
        assert len({*first, *second}) == 2 * len(first)


@pytest.mark.parametrize(
    ("total", "log_odds", "noisy", "sd"),
    [(7, 0.4, (5.0, -3.0), 2.0), (40, -2.5, (9.0, 20.0), 3.4), (0, 0.0, (3.0, 1.0), 1.0),
     (3, -9.0, (14.0, -2.0), 11.0), (5000, 1.0, (3600.0, 1401.0), 30.0),
     # Far apart, as counts and chains at their start may be.
     (5000, -6.9, (100.0, 4900.0), 5.0), (5000, 6.9, (1000.0, 4000.0), 15.0)],
)  # fmt: skip
def test_exchanges_are_exact(
    total: int, log_odds: float, noisy: tuple[float, float], sd: float
) -> None:
    """The probability of every count, by drawing at the quantiles of an even grid."""
    k = np.arange(total + 1)
    log_mass = special.gammaln(total + 1) - special.gammaln(k + 1) - special.gammaln(total - k + 1)
    log_mass = log_mass + k * log_odds
    log_mass -= ((k - noisy[0]) ** 2 + (total - k - noisy[1]) ** 2) / (2 * sd**2)
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    size = 20_000
    uniforms = ((np.arange(size) + 0.5) / size).reshape(size, 1, 1)
    counts = np.tile(np.array([[total, 0]]), (size, 1, 1))
    log_p = np.tile(np.array([[log_odds, 0.0]]), (size, 1, 1))
    pairs = np.array([0]), np.array([1])
    drawn = exchanged(counts, log_p, np.tile([[noisy]], (size, 1, 1)), sd, pairs, uniforms)
    np.testing.assert_array_equal(drawn.sum(-1), total)
    share = np.bincount(drawn[:, 0, 0], minlength=total + 1) / size
    np.testing.assert_allclose(share, mass, atol=1.01 / size)


def test_starts_add_up() -> None:
    rng = np.random.default_rng(0)
    noisy, sizes = rng.normal(3.0, 9.0, (5, 4, 6)), np.array([0, 1, 17, 400])
    start = start_counts(noisy, sizes, 3.0)
    assert (start >= 0).all()
    np.testing.assert_array_equal(start.sum(-1), np.tile(sizes, (5, 1)))


DATABASES = 600


def forward(rho: float, n: int) -> tuple[LocationAugmentation, Law]:
    """Chains that hold the confidential counts, T and W of databases drawn from a known law."""
    design, shape, law = small_design(), small_shape(), known_law()
    rng = np.random.default_rng(11)
    cell = np.repeat(np.arange(3), n // 3)
    noisy, exact = [], []
    for _ in range(DATABASES):
        combination, z = draw_records(law, cell, rng)
        sums = LocationSums(design)
        sums.add(cell, combination, z)
        exact.append(sums)
        noisy.append(
            released(design, sums, budget=Budget.of_rho(rho, 1e-6), source=ApproximateNoise(rng))
        )
    target = LocationTarget.of(shape, cell, noisy, 1)
    streams = Streams((np.random.default_rng(7),), 1)
    chains = LocationAugmentation(target, streams)
    chains.observe(np.stack([each.count for each in exact]).reshape(chains.counts.shape))
    step = design.clipping.step
    for p, (number, each) in enumerate(zip(target.patterns, target.targets, strict=True)):
        there = np.flatnonzero(shape.patterns[number])
        cross = np.zeros_like(each.cross)
        squares = np.zeros_like(each.squares)
        for block in design.blocks:
            if block.pattern != number:
                continue
            r = block.noise.rank
            for d, sums in enumerate(exact):
                own = sums.cross(block)[:, there].astype(np.float64) * 2.0**-30 * step
                cross[d, block.group, :r] = own
                whole = sums.squares_of(block)[np.ix_(there, there)].astype(np.float64)
                squares[d, block.group] = whole * step**2
        chains.cross[p] = cross
        chains.scatter[p] = squares - chains.geometry[p].explained(cross)
    return chains, law


def summaries(chains: LocationAugmentation) -> FloatArray:
    """Numbers that tell n, T and W and what they have to do with each other (databases, s)."""
    parts = [chains.counts.reshape(DATABASES, -1).astype(np.float64)]
    for p, target in enumerate(chains.target.targets):
        used = target.used.all(axis=0)
        cross, scatter = chains.cross[p][:, used], chains.scatter[p][:, used]
        parts += [
            cross.reshape(DATABASES, -1),
            (cross * cross).sum((-1, -2)),
            (cross * target.cross[:, used]).sum((-1, -2)),
            scatter.reshape(DATABASES, -1),
            (scatter * scatter).sum((-1, -2)),
            (scatter * target.squares[:, used]).sum((-1, -2)),
            np.linalg.slogdet(scatter)[1],
        ]
    counts = chains.counts - chains.target.counts
    parts.append((counts * counts).sum((-1, -2))[:, None])
    parts.append(((chains.counts - chains.counts.mean(0)) ** 2).sum((-1, -2))[:, None])
    return np.concatenate([part.reshape(DATABASES, -1) for part in parts], axis=1)


def of_patterns(chains: LocationAugmentation, law: Law, scale: float = 1.0) -> PatternLaw:
    """Return the known law, with covariances times a scale, by pattern."""
    shape = chains.target.shape

    def law_of(pattern: int) -> tuple[FloatArray, FloatArray]:
        beta, covariance = law.of_pattern(shape, pattern)
        # All spreads are one; groups have the same coefficients, and are the last axis.
        own = scale * np.moveaxis(covariance[0], 0, -1)[:, :, None]
        return (
            np.broadcast_to(beta[0, 0], (DATABASES, *beta.shape[2:])),
            np.broadcast_to(own, (*own.shape[:2], DATABASES, shape.groups)),
        )

    return law_of


def z_scores(rho: float, n: int, sweeps: int, change: str = "") -> FloatArray:
    """Of the change of every summary over some sweeps at the true law."""
    chains, law = forward(rho, n)
    log_p = np.broadcast_to(law.log_p, chains.counts.shape)
    scale = 1.3 if change == "covariance" else 1.0
    if change == "counts":
        log_p = log_p + 0.3 * np.arange(log_p.shape[-1])
    law_of = of_patterns(chains, law, scale)
    before = summaries(chains)
    for sweep in range(sweeps):
        if sweep % 16 == 0:
            chains.draw_random_numbers(16)
        chains.begin(sweep % 16, law_of, log_p)
        chains.finish(sweep % 16)
    difference = summaries(chains) - before
    error = difference.std(axis=0, ddof=1) / np.sqrt(DATABASES)
    return np.abs(difference.mean(axis=0)) / np.where(error > 0, error, 1.0)


@pytest.mark.parametrize(
    ("rho", "n"), [pytest.param(2.0, 90, marks=pytest.mark.slow), (0.15, 240)]
)
def test_a_sweep_leaves_the_law(rho: float, n: int) -> None:
    """The largest of about sixty z; another law is rejected."""
    right = z_scores(rho, n, sweeps=6)
    assert right.max() < 4.2
    for change in ("covariance", "counts"):
        assert z_scores(rho, n, 6, change).max() > 8.0


def test_a_scatter_without_a_root_moves() -> None:
    """One of as many degrees of freedom as columns may be so; where none moves it, it stays."""
    chains, law = forward(0.15, 240)
    moved = 0
    for p, each in enumerate(chains.laws_at(of_patterns(chains, law))):
        root = np.sqrt(np.einsum("bgqq->bgq", chains.scatter[p]))
        singular = root[..., :, None] * root[..., None, :]  # all correlations are 1
        chains.draw_random_numbers(1)
        result = chains._by_bartlett(0, p, each, singular, chains.cross[p])
        few = each.target.used & each.target.told & (each.geometry.df < FEW)
        if each.target.q == 1 or not few.any():
            continue
        own = result[few]
        size = np.sqrt(np.einsum("...qq->...q", own))
        least = np.linalg.eigvalsh(own / (size[..., :, None] * size[..., None, :]))[..., 0]
        assert (least > 1e-6).mean() > 0.95
        moved += int(few.sum())
    assert moved > DATABASES / 4
