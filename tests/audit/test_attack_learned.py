"""Whole releases with learned transforms against what rho allows: the mean log ratio of a pair.

Of a rho-zCDP mechanism the mean of the log-likelihood ratio (the Kullback-Leibler divergence) is at
most rho. The pair attains nearly all of it; half of the noise of histograms passes it.
"""

import numpy as np

from tests.long_runs.attack_learned import SHARE, example, log_ratios

RUNS = 16


def excess(divisor: float) -> tuple[float, float]:
    """The mean log ratio over rho, with its standard error."""
    rho = example()[1].budget.rho
    first, second = log_ratios(divisor, RUNS)
    ratios = np.concatenate([first, -second]) / rho
    return float(ratios.mean()), float(ratios.std() / np.sqrt(ratios.size))


def test_the_mean_log_ratio_is_that_of_the_budget() -> None:
    mean, error = excess(1.0)
    assert 0.4 < mean < 1.0 + 3.0 * error


def test_half_of_the_noise_of_histograms_is_found() -> None:
    mean, error = excess(2.0)
    # Four times what the histograms spend.
    assert mean > 1.0 + 5.0 * error
    assert abs(mean - (1.0 + 3.0 * 2 * SHARE)) < 5.0 * error
