"""Whitening by curvature and by points with their gradients, and chains of a normal law whose
curvature is unlike that of the first whitening. Truth: the covariance of the law."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.sampling.hmc import HamiltonianChains, Whitening, whitening_at

SIZE = 30


def covariance(rng: np.random.Generator) -> FloatArray:
    """SDs from 0.3 to 3 in directions of no coordinate."""
    axes = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
    return np.asarray((axes * np.geomspace(0.3, 3.0, SIZE) ** 2) @ axes.T)


#: Four blocks of three coordinates, which are not side by side; four of the rest are held.
APART = 3 + np.arange(12).reshape(3, 4).T
HELD = np.arange(SIZE) % 5 == 0
HELD[APART] = False


def plain() -> Whitening:
    def standard(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return x[:, 0], -x

    return whitening_at(standard, np.zeros(SIZE), np.zeros(SIZE, dtype=bool), np.ones(SIZE))


def of_blocks(rng: np.random.Generator, linked: float = 0.0) -> FloatArray:
    """A precision in which blocks meet the other coordinates, and each other by ``linked``."""
    root = 0.3 * rng.standard_normal((SIZE, SIZE))
    precision = root @ root.T + np.eye(SIZE)
    block = np.full(SIZE, -1)
    block[APART] = np.arange(len(APART))[:, None]
    apart = (block[:, None] != block) & (block[:, None] >= 0) & (block >= 0)
    precision[apart] *= linked
    return precision


def matrix_of(whitening: Whitening) -> FloatArray:
    return np.asarray((whitening.point(np.eye(SIZE)) - whitening.center).T)


def test_curvature_in_blocks_whitens_a_normal_law() -> None:
    """Held coordinates have the given curvature, and no other has to do with them."""
    rng = np.random.default_rng(3)
    center, curvature = rng.standard_normal(SIZE), np.linspace(1.0, 3.0, SIZE)
    for linked, exact in ((0.0, True), (0.5, False)):
        precision = of_blocks(rng, linked)

        def density(x: FloatArray, by: FloatArray = precision) -> tuple[FloatArray, FloatArray]:
            gradient = -(x - center) @ by
            return np.asarray(0.5 * ((x - center) * gradient).sum(1)), gradient

        found = whitening_at(density, center, HELD, curvature, APART)
        expected = precision.copy()
        expected[HELD] = expected[:, HELD] = 0.0
        expected[HELD, HELD] = curvature[HELD]
        root = matrix_of(found)
        left = root.T @ expected @ root - np.eye(SIZE)
        assert (np.abs(left).max() < 1e-6) == exact
        points = rng.standard_normal((5, SIZE))
        np.testing.assert_allclose(found.coordinates(found.point(points)), points, atol=1e-9)
        np.testing.assert_allclose(found.slopes(points), points @ root, atol=1e-12)


def test_points_in_blocks_give_the_whitening_of_a_normal_law() -> None:
    """The first whitening is that of a law of other scales; links to the others are its own."""
    rng = np.random.default_rng(4)
    precision, none = of_blocks(rng), np.zeros(SIZE, dtype=bool)
    first = whitening_at(
        lambda x: (x[:, 0], -x @ precision), np.zeros(SIZE), none, np.ones(SIZE), APART
    )
    root, scales = matrix_of(first), np.ones(SIZE)
    scales[APART] = np.geomspace(0.3, 3.0, APART.size).reshape(APART.shape)
    law = (root * scales**2) @ root.T
    points = rng.standard_normal((3000, SIZE)) @ np.linalg.cholesky(law).T
    found = first.updated(points, -points @ np.linalg.inv(law))
    inverse = np.linalg.inv(matrix_of(found))
    left = np.linalg.eigvalsh(inverse @ law @ inverse.T)
    assert left.max() / left.min() < 1.1


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
