"""R-hat and ESS against values of ArviZ (``golden/arviz.json``), to rounding, and on chains whose
fault is known; the convergence gate on draws made for either side of each limit."""

import json
from pathlib import Path

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.errors import RefusedError
from surveysynth.sampling import convergence
from surveysynth.sampling.convergence import check_convergence

GOLDEN = Path(__file__).parents[1] / "golden" / "arviz.json"
D = 6
DRAWS = 1000


def chains_of(correlation: float, chains: int, draws: int, seed: int = 1) -> FloatArray:
    """Stationary autoregressive chains (chains, draws, D); their ESS is known."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, draws, D))
    x[:, 0] = rng.normal(size=(chains, D))
    spread = np.sqrt(1.0 - correlation**2)
    for t in range(1, draws):
        x[:, t] = correlation * x[:, t - 1] + spread * rng.normal(size=(chains, D))
    return x


SHAPES = [(4, 250), (2, 101), (4, 1000), (3, 13), (4, 8), (2, 5), (2, 4)]


CORRELATIONS = [-0.9, -0.3, 0.0, 0.5, 0.99]


def odd_chains(correlation: float, chains: int, draws: int) -> FloatArray:
    """Of which one is skewed, one has ties, and one has a chain apart."""
    x = chains_of(correlation, chains, draws)
    # Rounded, since the last digit of an exponential depends on the processor, and with it which of
    # the two values about a median is nearer to it.
    x[..., 1] = np.round(np.exp(3.0 * x[..., 1]), 6)
    if draws > 10:
        x[..., 2] = np.round(x[..., 2])
    x[0, :, 3] += 2.0
    return x


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize(("chains", "draws"), SHAPES)
def test_equal_to_arviz(correlation: float, chains: int, draws: int) -> None:
    x = odd_chains(correlation, chains, draws)
    truth = json.loads(GOLDEN.read_text(encoding="utf-8"))[f"{correlation:g} {chains} {draws}"]
    np.testing.assert_allclose(convergence.r_hat(x), truth["rhat"], rtol=1e-8)
    np.testing.assert_allclose(convergence.effective_sample_size(x), truth["ess"], rtol=1e-8)


def test_one_chain_is_split() -> None:
    x = chains_of(0.3, 1, 400)
    assert np.all(convergence.r_hat(x) < 1.05)
    x[:, 200:] += 1.0
    assert np.all(convergence.r_hat(x) > 1.1)


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.8])
def test_effective_sample_size_of_an_autoregression(correlation: float) -> None:
    draws = 20_000
    found = convergence.effective_sample_size(chains_of(correlation, 4, draws))
    truth = 4 * draws * (1 - correlation) / (1 + correlation)
    # Above four times the draws (antithetic chains) ArviZ and we cap at n log10(n).
    np.testing.assert_allclose(found, min(truth, 4 * draws * np.log10(4 * draws)), rtol=0.12)


def test_good_chains_pass() -> None:
    x = chains_of(0.2, 4, 500)
    assert np.all(convergence.r_hat(x) < 1.01)
    assert np.all(convergence.effective_sample_size(x) > 800)


def shifted(x: FloatArray) -> None:
    x[0] += 1.0


def wider(x: FloatArray) -> None:
    x[0] *= 3.0


def drifting(x: FloatArray) -> None:
    x += np.linspace(0.0, 3.0, x.shape[1])[None, :, None]


def one_stuck(x: FloatArray) -> None:
    x[0] = x[0, :1]


def sticky(x: FloatArray) -> None:
    x[:] = np.repeat(x[:, ::100], 100, axis=1)


@pytest.mark.parametrize("fault", [shifted, wider, drifting, one_stuck])
def test_chains_that_disagree_have_a_large_r_hat(fault: object) -> None:
    x = chains_of(0.2, 4, 500)
    fault(x)  # type: ignore[operator]
    assert np.all(convergence.r_hat(x) > 1.05)


@pytest.mark.parametrize("fault", [shifted, drifting, sticky])
def test_chains_that_hardly_move_have_a_small_ess(fault: object) -> None:
    x = chains_of(0.2, 4, 500)
    fault(x)  # type: ignore[operator]
    assert np.all(convergence.effective_sample_size(x) < 100)


def test_a_parameter_that_never_moves_fails_without_a_warning() -> None:
    x = chains_of(0.2, 4, 100)
    x[..., 0] = 3.7
    assert convergence.r_hat(x)[0] == np.inf
    assert convergence.effective_sample_size(x)[0] == 0.0
    assert np.all(np.isfinite(convergence.r_hat(x)[1:]))


def test_chains_stuck_in_different_places_fail() -> None:
    x = np.broadcast_to(np.arange(4.0)[:, None, None], (4, 100, 2))
    assert np.all(convergence.r_hat(x) > 1.05)
    assert np.all(convergence.effective_sample_size(x) < 10.0)


def test_parameters_do_not_affect_each_other() -> None:
    x = chains_of(0.6, 4, 200)
    for j in range(D):
        alone = x[..., j : j + 1]
        assert convergence.r_hat(alone)[0] == pytest.approx(convergence.r_hat(x)[j], rel=1e-12)
        assert convergence.effective_sample_size(alone)[0] == pytest.approx(
            convergence.effective_sample_size(x)[j], rel=1e-12
        )


def chains(spread: float = 0.0, memory: float = 0.0, number: int = 4) -> np.ndarray:
    """(number, 1000, 1) autoregressive chains about means of their own."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((number, DRAWS, 1))
    for t in range(1, DRAWS):
        x[:, t] = memory * x[:, t - 1] + np.sqrt(1 - memory**2) * x[:, t]
    return x + spread * np.linspace(-1.7, 1.7, number)[:, None, None]


def test_r_hat_on_either_side_of_its_limit() -> None:
    # So many chains that their effective size is enough, however far they lie apart.
    below, above = (chains(spread, number=60) for spread in (0.25, 0.45))
    assert 1.01 < convergence.r_hat(below)[0] < 1.05 < convergence.r_hat(above)[0] < 1.15
    assert convergence.effective_sample_size(above)[0] > 150
    check_convergence({"beta": below}, None)
    with pytest.raises(RefusedError, match=r"R-hat .* for beta"):
        check_convergence({"beta": above}, None)


def test_the_effective_size_on_either_side_of_its_limit() -> None:
    enough, too_small = chains(memory=0.92), chains(memory=0.96)
    sizes = [convergence.effective_sample_size(x)[0] for x in (too_small, enough)]
    assert 30 < sizes[0] < 100 < sizes[1] < 300
    assert convergence.r_hat(too_small)[0] < 1.05
    assert check_convergence({"log_sd": enough}, None)[1] == {"log_sd": pytest.approx(sizes[1])}
    with pytest.raises(RefusedError, match=r"effective sample size .* for log_sd"):
        check_convergence({"log_sd": too_small}, None)


def test_one_of_a_hundred_draws_may_diverge_and_no_more() -> None:
    good, divergent = {"beta": chains()}, np.zeros((4, 250))
    divergent.flat[:10] = 1.0
    check_convergence(good, divergent)
    divergent.flat[10] = 1.0
    with pytest.raises(RefusedError, match="More than 1% of the draws diverged"):
        check_convergence(good, divergent)
