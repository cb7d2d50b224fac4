"""Turns of effects of PSUs: SciPy's normal densities of the effects before and after, and the law
of T under turns alone against its prior and, with a likelihood, against quadrature of a density
written out in scales and a determinant. Wrong powers of the scale are rejected."""

import numpy as np
import pytest
from scipy import integrate, stats

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.psu_turns import Turn
from tests.long_runs.sbc import lkj_draws

SCALE, LKJ, D = 1.5, 2.0, 3
PAIRS = [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)]


def covariances(draws: int, rng: np.random.Generator) -> FloatArray:
    """T (B, D, D) from its prior."""
    scale = SCALE * np.abs(rng.standard_t(3, (draws, D)))
    root = scale[..., None] * lkj_draws(draws, D, LKJ, rng)
    return np.asarray(root @ root.swapaxes(-1, -2))


def one(draws: int = 1) -> FloatArray:
    covariance = np.array([[1.0, 0.3, -0.2], [0.3, 0.5, 0.1], [-0.2, 0.1, 0.8]])
    return np.repeat(covariance[None], draws, axis=0)


def log_density(covariance: FloatArray) -> float:
    """Of T (D, D): half-t scales times LKJ times the Jacobian of both, up to a constant."""
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    log_lkj = (LKJ - 1.0) * np.log(np.linalg.det(correlation))
    return float(
        stats.t.logpdf(scale / SCALE, 3).sum() + log_lkj - D * np.log(scale).sum()
    )


def by_hand(covariance: FloatArray, pair: tuple[int, int], t: float) -> FloatArray:
    turn = np.eye(D)
    turn[pair[1], pair[0]] = t
    return turn.T @ covariance @ turn


@pytest.mark.parametrize("pair", PAIRS)
def test_a_turn_leaves_the_density_of_the_effects(pair: tuple[int, int]) -> None:
    rng, t = np.random.default_rng(1), np.array([0.7])
    effects = rng.standard_normal((5, D))
    after = effects.copy()
    after[:, pair[0]] += 0.7 * effects[:, pair[1]]
    turn = Turn(one(), pair, np.array([1.0]), (SCALE, LKJ))
    np.testing.assert_allclose(turn.turned(t)[0], by_hand(one()[0], pair, 0.7), rtol=1e-12)
    np.testing.assert_allclose(
        stats.multivariate_normal.logpdf(after, cov=turn.turned(t)[0]),
        stats.multivariate_normal.logpdf(effects, cov=one()[0]),
        rtol=1e-12,
    )


def moved(
    covariance: FloatArray, likelihood: tuple[float, float], rounds: int, seed: int = 2
) -> FloatArray:
    """T after turns of the pair (0, 1), whose sum so far is t, under exp(l t - q t^2 / 2)."""
    rng, draws = np.random.default_rng(seed), len(covariance)
    (linear, q), so_far = likelihood, np.zeros(draws)
    for _ in range(rounds):
        turn = Turn(covariance, (0, 1), np.full(draws, q), (SCALE, LKJ))
        t = turn.draw(
            linear - q * so_far, rng.standard_normal(draws), np.log(rng.random(draws))
        )
        covariance, so_far = turn.turned(t), so_far + t
    return so_far


def error_against_quadrature(likelihood: tuple[float, float]) -> float:
    """The largest of the errors of two moments of t, over their Monte Carlo errors."""
    (linear, q), start = likelihood, one()[0]

    def density(t: float) -> float:
        turned = by_hand(start, (0, 1), t)
        return float(
            np.exp(linear * t - 0.5 * q * t * t + log_density(turned) - log_density(start))
        )

    found = moved(one(20_000), likelihood, 100)
    total = integrate.quad(density, -np.inf, np.inf)[0]
    errors = []
    for moment in (np.arctan, lambda t: np.abs(np.arctan(t - 0.3))):
        def times(t: float, moment: np.ufunc = moment) -> float:
            return float(moment(t)) * density(t)

        truth = integrate.quad(times, -np.inf, np.inf)[0] / total
        values = moment(found)
        errors.append(abs(values.mean() - truth) / (values.std() / np.sqrt(len(found))))
    return float(max(errors))


@pytest.mark.parametrize(
    "likelihood", [(0.0, 0.0), (2.0, 3.0), (40.0, 60.0)], ids=["none", "wide", "narrow"]
)
def test_turns_draw_from_prior_times_likelihood(likelihood: tuple[float, float]) -> None:
    assert error_against_quadrature(likelihood) < 4.0


def p_value_of_the_prior() -> float:
    """The smallest, of scales and correlations after turns of draws from the prior."""
    rng, draws = np.random.default_rng(3), 20_000
    covariance, nothing = covariances(draws, rng), np.zeros(draws)
    for pair in PAIRS * 2:
        turn = Turn(covariance, pair, nothing, (SCALE, LKJ))
        t = turn.draw(nothing, rng.standard_normal(draws), np.log(rng.random(draws)))
        covariance = turn.turned(t)
    scale = np.sqrt(np.einsum("bdd->bd", covariance))
    correlation = covariance / (scale[:, :, None] * scale[:, None])
    a = LKJ - 1.0 + 0.5 * D
    return float(min(
        *(stats.kstest(each / SCALE, lambda s: 2.0 * stats.t.cdf(s, 3) - 1.0).pvalue
          for each in scale.T),
        *(stats.kstest(0.5 + 0.5 * correlation[:, j, k], stats.beta(a, a).cdf).pvalue
          for j, k in PAIRS[:3]),
    ))  # fmt: skip


def test_turns_leave_the_prior() -> None:
    assert p_value_of_the_prior() > 1e-3


@pytest.mark.parametrize("change", [-1.0, 1.0])
def test_a_wrong_power_of_the_scale_is_rejected(
    change: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = Turn.__init__

    def wrong(
        self: Turn, covariance: FloatArray, pair: tuple[int, int], quadratic: FloatArray,
        prior: tuple[float, float],
    ) -> None:  # fmt: skip
        sound(self, covariance, pair, quadratic, prior)
        self.power += change

    monkeypatch.setattr(Turn, "__init__", wrong)
    assert p_value_of_the_prior() < 1e-6
    assert error_against_quadrature((2.0, 3.0)) > 8.0
