"""rho and (epsilon, delta): a grid of orders, the exact privacy profile of a Gaussian."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import (
    Budget,
    epsilon_of,
    log_delta_of,
    rho_of,
)

RHOS = (1e-6, 0.0244, 0.257, 1.752, 30.0)
#: rho at delta = 1e-6, as the design of the mechanism has it.
DESIGN = {10.8: 1.752, 3.6: 0.257, 1.0: 0.0244}


def delta_on_a_grid(rho: float, epsilon: float) -> float:
    """The bound as it is printed, at a hundred thousand orders."""
    order = 1.0 + np.geomspace(1e-8, 1e8, 100_001)
    with np.errstate(over="ignore"):
        bounds = (
            np.exp((order - 1) * (order * rho - epsilon)) / (order - 1) * (1 - 1 / order) ** order
        )
    return float(bounds.min())


def test_the_design_figures() -> None:
    for epsilon, rho in DESIGN.items():
        assert rho_of(epsilon, 1e-6) == pytest.approx(rho, rel=2e-3)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-4])
def test_it_is_the_minimum_over_orders(rho: float, delta: float) -> None:
    epsilon = epsilon_of(rho, delta)
    found = math.exp(log_delta_of(rho, epsilon))
    assert found == pytest.approx(delta, rel=1e-6)
    grid = delta_on_a_grid(rho, epsilon)
    assert found <= grid * (1 + 1e-9)
    assert found == pytest.approx(grid, rel=1e-4)
    # A wrong conversion that leaves out the factor (1 - 1/alpha)^alpha / (alpha - 1).
    plain = math.exp(-((epsilon - rho) ** 2) / (4 * rho))
    assert plain > 1.2 * found


@pytest.mark.parametrize("rho", RHOS)
def test_it_holds_for_a_gaussian_whose_profile_is_known(rho: float) -> None:
    """Balle & Wang 2018: delta = Phi(d/2 - e/d) - exp(e) Phi(-d/2 - e/d), d^2 = 2 rho."""
    distance = math.sqrt(2.0 * rho)
    for delta in (1e-9, 1e-6, 1e-3):
        epsilon = epsilon_of(rho, delta)
        left = stats.norm.logcdf(distance / 2 - epsilon / distance)
        right = epsilon + stats.norm.logcdf(-distance / 2 - epsilon / distance)
        exact = math.exp(left) - math.exp(right)
        assert exact <= delta * (1 + 1e-6)
        assert exact > 0.01 * delta  # and is not far from it


@given(st.floats(1e-5, 1e3), st.floats(1e-15, 0.5))
def test_both_ways(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert log_delta_of(rho, epsilon) <= math.log(delta)  # the safe end
    assert log_delta_of(rho * (1 + 1e-6), epsilon) > math.log(delta)
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-9)


def test_more_budget_and_more_delta_are_worth_more() -> None:
    by_epsilon = [rho_of(epsilon, 1e-6) for epsilon in (0.1, 0.5, 1, 3.6, 10.8)]
    by_delta = [rho_of(3.6, delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3)]
    assert by_epsilon == sorted(by_epsilon)
    assert by_delta == sorted(by_delta)


def test_a_budget_by_either_currency() -> None:
    budget = Budget.of_epsilon(3.6, 1e-6)
    assert budget.rho == rho_of(3.6, 1e-6)
    assert Budget.of_rho(budget.rho, 1e-6).epsilon == pytest.approx(3.6, rel=1e-12)


def test_figures_that_are_no_budget() -> None:
    for call in (
        lambda: rho_of(0.0, 1e-6),
        lambda: rho_of(math.nan, 1e-6),
        lambda: rho_of(1.0, 0.0),
        lambda: rho_of(1.0, 1.0),
        lambda: epsilon_of(-1.0, 1e-6),
    ):
        with pytest.raises(InputError):
            call()


def test_budgets_that_are_hardly_budgets_have_an_epsilon_too() -> None:
    """Orders next to 1 decide there: 1 + 1e-330 is no double."""
    for rho in (1e-12, 1e8, 1e16):
        epsilon = epsilon_of(rho, 1e-6)
        assert rho_of(epsilon, 1e-6) == pytest.approx(rho, rel=1e-6)
