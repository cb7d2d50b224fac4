"""Log-likelihoods by record against scipy's multivariate normal (FBS) and the formula of methods 3
written out record by record (FBP), on both code paths."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models import get_model
from surveysynth.models.gaussian import model as log_lik
from surveysynth.models.gaussian.model import GaussianRecords
from surveysynth.survey.survey import PublicDesign
from tests.models.model_designs import continuous_design, group_design, records_of, rows_of

N, DRAWS, K = 90, 7, 3
Maker = Callable[..., PublicDesign]
DESIGNS: dict[str, Maker] = {"cells": group_design, "continuous": continuous_design}
each_design = pytest.mark.parametrize("make", DESIGNS.values(), ids=DESIGNS.keys())


def random_theta(name: str, outcomes: int) -> Theta:
    rng = np.random.default_rng(50)
    if name == "fbs":
        q = outcomes + 1
        root = rng.normal(size=(DRAWS, q, q))
        return {
            "beta": rng.normal(size=(DRAWS, K, q)),
            "covariance": root @ root.swapaxes(-1, -2) + 0.1 * np.eye(q),
        }
    return {
        "beta": rng.normal(size=(DRAWS, K)),
        "selection": rng.normal(size=(DRAWS, K + 1)),
        "variance": rng.uniform(0.1, 2.0, (DRAWS, 2)),
    }


def random_z(outcomes: int) -> FloatArray:
    return np.random.default_rng(51).normal(size=(N, outcomes + 1)) * 2.0 + 3.0


def gather(name: str, theta: Theta, records: GaussianRecords) -> FloatArray:
    """(S, n), checking that every record occurs exactly once."""
    result, seen = np.full((DRAWS, records.n), np.nan), np.zeros(records.n, dtype=int)
    for rows, values in get_model(name).log_lik_blocks(theta, records):
        result[:, rows] = values
        np.add.at(seen, rows, 1)
    assert np.all(seen == 1)
    return result


def fbs_truth(theta: Theta, x: FloatArray, z: FloatArray) -> FloatArray:
    result = np.empty((DRAWS, x.shape[0]))
    for s in range(DRAWS):
        mean, covariance = x @ theta["beta"][s], theta["covariance"][s]
        for i in range(x.shape[0]):
            result[s, i] = stats.multivariate_normal(mean[i], covariance).logpdf(z[i])
    return result


def fbp_truth(theta: Theta, x: FloatArray, z: FloatArray) -> FloatArray:
    """log N(log pi | k_y y + x k_x, s_pi^2) + log N(y | x beta, s_y^2) - log E(pi | x)."""
    result = np.empty((DRAWS, x.shape[0]))
    for s in range(DRAWS):
        k_y, k_x = theta["selection"][s, 0], theta["selection"][s, 1:]
        s_y, s_pi = np.sqrt(theta["variance"][s])
        for i, (x_i, (y, log_pi)) in enumerate(zip(x, z, strict=True)):
            mean = x_i @ theta["beta"][s]
            result[s, i] = (
                stats.norm.logpdf(log_pi, k_y * y + x_i @ k_x, s_pi)
                + stats.norm.logpdf(y, mean, s_y)
                - (x_i @ k_x + s_pi**2 / 2 + k_y * mean + k_y**2 * s_y**2 / 2)
            )
    return result


@each_design
@pytest.mark.parametrize("outcomes", [1, 2, 3])
def test_fbs_is_the_multivariate_normal(make: Maker, outcomes: int) -> None:
    design, z, theta = make(N, K, outcomes), random_z(outcomes), random_theta("fbs", outcomes)
    truth = fbs_truth(theta, rows_of(design), z)
    np.testing.assert_allclose(gather("fbs", theta, records_of(design, z)), truth, rtol=1e-9)


@each_design
def test_fbp_is_the_tilted_density(make: Maker) -> None:
    design, z, theta = make(N, K), random_z(1), random_theta("fbp", 1)
    truth = fbp_truth(theta, rows_of(design), z)
    np.testing.assert_allclose(gather("fbp", theta, records_of(design, z)), truth, rtol=1e-9)


def moved(design: PublicDesign, z: FloatArray, order: IntArray) -> GaussianRecords:
    return GaussianRecords(design.matrix.x_cells, design.matrix.cell[order], z[order])


@each_design
@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_neither_order_nor_block_size_matters(
    make: Maker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, z, theta = make(N, K), random_z(1), random_theta(name, 1)
    usual = gather(name, theta, records_of(design, z))
    order = np.random.default_rng(52).permutation(N)
    reordered = gather(name, theta, moved(design, z, order))
    np.testing.assert_allclose(reordered, usual[:, order], rtol=1e-12, atol=1e-12)
    whole = log_lik.ranges_of_blocks
    for budget in (1, 5 * DRAWS, 40 * DRAWS):
        monkeypatch.setattr(log_lik, "BLOCK", budget)
        monkeypatch.setattr(log_lik, "ranges_of_blocks", lambda s, d, b=budget: whole(s, d, b))
        small = gather(name, theta, records_of(design, z))
        np.testing.assert_allclose(small, usual, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_both_code_paths_are_used_and_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    design, z, theta = group_design(N, K), random_z(1), random_theta(name, 1)
    results = []
    for small_block in (0, 10**9):
        monkeypatch.setattr(log_lik, "SMALL_BLOCK", small_block)
        results.append(gather(name, theta, records_of(design, z)))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12, atol=1e-12)


def test_ranges_cover_each_block_once_within_the_budget() -> None:
    starts = np.concatenate([[0], np.cumsum([3, 0, 50, 1, 1, 1, 7, 0])])
    for draws, budget in ((1, 1), (4, 40), (4, 100), (1000, 10)):
        blocks = list(log_lik.ranges_of_blocks(starts, draws, budget))
        assert [first for first, _ in blocks] == [0, *(last for _, last in blocks[:-1])]
        assert blocks[-1][1] == 8
        for first, last in blocks:
            one_cell = last == first + 1
            assert one_cell or (starts[last] - starts[first]) * draws <= budget


def test_far_records_keep_their_digits() -> None:
    """A tight residual far from zero: expanding about the origin would lose every digit."""
    design, z = group_design(N, K), random_z(1) * 1e-4 + 12.0
    beta = np.tile(np.array([[12.0, 12.0], [0.0, 0.0], [0.0, 0.0]]), (DRAWS, 1, 1))
    theta = {"beta": beta, "covariance": np.tile(1e-8 * np.eye(2), (DRAWS, 1, 1))}
    truth = fbs_truth(theta, rows_of(design), z)
    np.testing.assert_allclose(gather("fbs", theta, records_of(design, z)), truth, rtol=1e-6)
