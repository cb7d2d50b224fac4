"""Normals that cut at bounds have given moments. Truth: quadrature of the cut density, and SciPy's
maximum of the likelihood where no normal has the moments."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from surveysynth.models.general_location import simulate
from surveysynth.models.general_location.simulate import MARGIN, WIDEST, cut_normal, parent_normal
from surveysynth.survey.outcome import Outcome
from tests.models.general_location.general_cases import (
    PLAIN,
    draw,
    general_design,
    model_for,
    random_theta,
)

INF = np.inf


def cut_moments(mu: float, sigma: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Mean and SD of N(mu, sigma^2) cut at the ends, by quadrature in logs."""
    low, high = max(ends[0], mu - 12 * sigma), min(ends[1], mu + 12 * sigma)
    if ends[0] > mu:  # a tail: about exponential
        high = min(ends[1], low + 40 * sigma * sigma / (low - mu), low + 12 * sigma)
    if ends[1] < mu:
        low = max(ends[0], high - 40 * sigma * sigma / (mu - high), high - 12 * sigma)
    nearest = float(np.clip(mu, low, high))

    def part(power: int, centre: float) -> float:
        def integrand(t: float) -> float:
            log = -0.5 * ((t - mu) ** 2 - (nearest - mu) ** 2) / sigma**2
            return float(np.exp(log) * (t - centre) ** power)

        middle = [low + share * (high - low) for share in (0.05, 0.2, 0.5, 0.8, 0.95)]
        found = quad(integrand, low, high, points=middle, epsrel=1e-12, epsabs=0, limit=400)
        return float(found[0])

    total = part(0, 0.0)
    mean = low + part(1, low) / total
    return mean, float(np.sqrt(part(2, mean) / total))


def solved(m: float, s: float, ends: tuple[float, float]) -> tuple[float, float]:
    mu, sigma = parent_normal(np.array([m]), np.array([s]), ends)
    return float(mu[0]), float(sigma[0])


@pytest.mark.parametrize(
    ("m", "s", "ends"),
    [
        (1.2, 1.0, (0.0, INF)), (2.0, 1.0, (0.0, INF)), (1.0, 0.7, (-1.0, INF)),
        (-0.4, 0.3, (-INF, 0.0)), (0.6, 0.2, (0.0, 1.0)), (0.5, 0.25, (0.0, 1.0)),
        (0.3, 0.2, (0.0, 5.0)), (100.0, 9.0, (75.0, 115.0)),
    ],
)  # fmt: skip
def test_the_cut_normal_has_the_moments(m: float, s: float, ends: tuple[float, float]) -> None:
    mean, sd = cut_moments(*solved(m, s, ends), ends)
    assert abs(mean - m) < 1e-8 * s
    assert abs(sd - s) < 1e-8 * s
    # The fitted normal itself, cut, does not.
    plain, spread = cut_moments(m, s, ends)
    assert max(abs(plain - m), abs(spread - s)) > 5e-3 * s


def test_far_bounds_change_nothing() -> None:
    m, s = np.linspace(-1.0, 1.0, 50), np.full(50, 0.1)
    for ends in ((-INF, INF), (-2.0, INF), (-2.0, 2.0)):
        mu, sigma = parent_normal(m, s, ends)
        np.testing.assert_array_equal(mu, m)
        np.testing.assert_array_equal(sigma, s)
    # Just inside of where bounds count: all digits but the last few.
    mu, sigma = parent_normal(m, s, (-1.0 - 0.1 * (simulate.FAR - 0.01), INF))
    np.testing.assert_allclose(mu, m, atol=1e-13)
    np.testing.assert_allclose(sigma, s, rtol=1e-13)


@pytest.mark.parametrize(
    ("m", "s", "ends"), [(0.6, 1.0, (0.0, INF)), (0.9, 1.0, (0.0, 3.0)), (0.4, 0.5, (0.0, 1.0))]
)
def test_where_no_normal_has_them_it_is_the_likeliest(
    m: float, s: float, ends: tuple[float, float]
) -> None:
    mu, sigma = solved(m, s, ends)
    assert sigma == pytest.approx(WIDEST * s, rel=1e-12)
    mean, sd = cut_moments(mu, sigma, ends)
    assert abs(mean - m) < 1e-8
    assert sd < s
    # Maximum of the likelihood in mu at that sigma.
    low, high = ends[0], min(ends[1], 60.0)

    def loss(place: float) -> float:
        def density(t: float) -> float:
            return float(np.exp((-0.5 * (t - place) ** 2 + 0.5 * (m - place) ** 2) / sigma**2))

        return float(np.log(quad(density, low, high, epsabs=0, limit=200)[0]))

    best = minimize_scalar(loss, bounds=(mu - 5, mu + 5), method="bounded").x
    assert abs(best - mu) < 1e-3 * sigma


@pytest.mark.parametrize("ends", [(0.0, INF), (-INF, 0.0), (0.0, 1.5), (0.0, 0.2)])
def test_the_rule_is_continuous_and_draws_stay_inside(ends: tuple[float, float]) -> None:
    m = np.linspace(-1.5, 3.0, 2_001)
    s = np.full(m.size, 0.8)
    mu, sigma = parent_normal(m, s, ends)
    drawn = cut_normal(mu, sigma, ends, np.random.default_rng(1))
    assert np.isfinite(drawn).all()
    assert drawn.min() >= ends[0]
    assert drawn.max() <= ends[1]
    margin = MARGIN * min(0.8, ends[1] - ends[0])
    expected = np.clip(m, ends[0] + margin, ends[1] - margin)
    some = slice(None, None, 50)
    pairs = zip(mu[some], sigma[some], strict=True)
    moments = np.array([cut_moments(*pair, ends) for pair in pairs])
    np.testing.assert_allclose(moments[:, 0], expected[some], atol=1e-7)
    assert (moments[:, 1] <= 0.8 * (1 + 1e-9)).all()
    # No jumps: neighbours' laws are close, in their parameters as densities know them.
    for natural in (mu / sigma**2, 1.0 / sigma**2):
        steps = np.abs(np.diff(natural))
        inside = np.minimum(expected - ends[0], ends[1] - expected)[1:] > 0.1
        assert steps[inside].max(initial=0.0) < 0.4


def test_both_sides_are_alike() -> None:
    m = np.random.default_rng(1).uniform(-0.2, 1.2, 300)
    s = np.random.default_rng(2).uniform(0.1, 0.9, 300)
    mu, sigma = parent_normal(m, s, (0.0, 1.0))
    turned, other = parent_normal(1.0 - m, s, (0.0, 1.0))
    np.testing.assert_allclose(sigma, other, rtol=1e-6)
    np.testing.assert_allclose((mu / sigma**2), (1.0 - turned) / sigma**2, rtol=1e-5, atol=1e-5)


def test_the_weight_of_a_cell_is_that_of_its_bounded_sample() -> None:
    """FBP's tilt is of the law that the sample is drawn from."""
    pay = Outcome("pay", transform=PLAIN, lower=-0.3, upper=1.0)
    design = general_design(60_000, (pay,))
    model = model_for(form="fbp")
    theta = draw(random_theta(model, design, 1, seed=8), 0)
    theta["coefficients_weight"][-1] = 1.5
    sample = model.simulate(theta, design, np.random.default_rng(10), "sample")
    released = model.simulate(theta, design, np.random.default_rng(11), "release")
    weight = model.drawn_weight(design, sample)
    smooth = model.smooth_weight(theta, design, released)
    for cell in range(design.matrix.x_cells.shape[0]):
        rows = design.matrix.cell == cell
        w, z, size = weight[rows], sample.z[rows, 0], rows.sum()
        assert abs(w.mean() - smooth[rows][0]) < 4.5 * w.std() / np.sqrt(size)
        mean = (w * z).sum() / w.sum()
        error = np.hypot(
            released.z[rows, 0].std() / np.sqrt(size),
            np.sqrt(((w * (z - mean)) ** 2).sum()) / w.sum(),
        )
        assert abs(released.z[rows, 0].mean() - mean) < 4.5 * error
    plain = replace(design, outcomes=(replace(pay, lower=None, upper=None),))
    assert not np.allclose(model.smooth_weight(theta, plain, released), smooth, rtol=0.05)
