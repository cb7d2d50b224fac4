"""Whitening by points with their gradients, and chains of a normal law whose curvature is unlike
that of the first whitening. Truth: the covariance of the law."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.sampling.hmc import HamiltonianChains, Whitening

SIZE = 30


def covariance(rng: np.random.Generator) -> FloatArray:
    """SDs from 0.3 to 3 in directions of no coordinate."""
    axes = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
    return np.asarray((axes * np.geomspace(0.3, 3.0, SIZE) ** 2) @ axes.T)


def plain() -> Whitening:
    return Whitening(np.zeros(SIZE), np.eye(SIZE), np.eye(SIZE))


def test_few_points_with_gradients_give_the_whitening_of_a_normal_law() -> None:
    """Points about another center, and too near to it; of two points a coordinate, covariances
    alone are far off."""
    rng = np.random.default_rng(1)
    law = covariance(rng)
    points = 1.0 + 0.7 * rng.standard_normal((3000, SIZE)) @ np.linalg.cholesky(law).T
    for number, most in ((3000, 1.1), (2 * SIZE, 6.0)):
        few = points[:number]
        found = plain().updated(few, -few @ np.linalg.inv(law))
        np.testing.assert_allclose(found.inverse @ found.root, np.eye(SIZE), atol=1e-8)
        left = np.linalg.eigvalsh(found.inverse @ law @ found.inverse.T)
        assert left.max() / left.min() < most
    root = np.linalg.inv(np.linalg.cholesky(law))
    of_points = np.linalg.eigvalsh(root @ np.cov(few.T) @ root.T)
    assert of_points.max() / of_points.min() > 20.0


def test_chains_learn_a_normal_law_from_a_whitening_that_is_not_its_own() -> None:
    rng = np.random.default_rng(2)
    law = covariance(rng)
    precision = np.linalg.inv(law)

    def density(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        gradient = -x @ precision
        return np.asarray(0.5 * (x * gradient).sum(1)), np.asarray(gradient)

    chains = HamiltonianChains(density, plain(), 16, rng)
    chains.warm_up(100)
    points = chains.sample(300).reshape(-1, SIZE)
    root = np.linalg.inv(np.linalg.cholesky(law))
    left = np.linalg.eigvalsh(root @ np.cov(points.T) @ root.T)
    assert 0.7 < left.min() < left.max() < 1.4
    scaled = points @ root.T
    assert np.abs(scaled.mean(0)).max() < 0.1
