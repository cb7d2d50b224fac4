"""The gates on the fit that is released. Truth: made draws on either side of each limit, whose
R-hat and effective sample size ``test_diagnostics.py`` holds equal to ArviZ's."""

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.sampling import convergence
from surveysynth.sampling.convergence import check_convergence

DRAWS = 1000


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
