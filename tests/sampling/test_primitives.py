"""Each primitive against an independent truth: scipy's distributions, closed marginals, or a
distribution function integrated numerically from the density written out here.

Samples are large enough that the mistakes one makes (a Jacobian dropped, a degree of freedom
more) are rejected; the tests say so by rejecting them.
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.sampling import primitives

BATCH = 8_000
#: Level of a test that must pass: there are a hundred of them.
LEVEL = 1e-4
Cdf = Callable[[FloatArray], FloatArray]


def integrated_cdf(log_density: Callable[[FloatArray], FloatArray]) -> Cdf:
    """CDF of x > 0 whose log density (in x) is given up to a constant, by the trapezoidal rule in
    log x: on a coarse grid to find the mass, then on a fine one."""
    lower, upper = -90.0, 90.0
    for _ in range(3):
        t = np.linspace(lower, upper, 200_001)
        with np.errstate(over="ignore"):
            values = log_density(np.exp(t)) + t
        inside = np.flatnonzero(values > np.nanmax(values) - 45.0)
        lower, upper = t[max(inside[0] - 1, 0)], t[min(inside[-1] + 1, t.size - 1)]
    mass = np.exp(values - values.max())
    cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (mass[1:] + mass[:-1]))])
    return lambda x: np.interp(np.log(x), t, cumulative / cumulative[-1])


def scale_log_density(
    s: FloatArray, power: float, quadratic: float, linear: float, prior: tuple[float, float]
) -> FloatArray:
    half_t = stats.t.logpdf(s / prior[1], prior[0])
    return half_t - power * np.log(s) - 0.5 * quadratic / s**2 + linear / s


def scale_draws(
    case: tuple[float, float, float], prior: tuple[float, float], start: float, steps: int = 10
) -> FloatArray:
    rng = np.random.default_rng(5)
    power, quadratic, linear = case
    s = np.full(BATCH, start)
    for _ in range(steps):
        s = primitives.update_scales(
            s, power, np.full(BATCH, quadratic), np.full(BATCH, linear), prior,
            rng.random((2, BATCH)),
        )  # fmt: skip
    return s


SCALE_CASES = {
    "two coefficients": (1.0, 2.0, 0.3),
    "prior alone": (0.0, 0.0, 0.0),
    "tiny quadratic": (1.0, 1e-12, 0.0),
    "large quadratic": (1.0, 1e8, 0.0),
    "far peak": (1.0, 4.0, 200.0),
    "very far peak": (1.0, 1e4, 1e6),
    "peak at the edge of being far": (1.0, 1.0, 9.5),
    "negative linear": (1.0, 1.0, -3.0),
    "strongly negative linear": (1.0, 1.0, -300.0),
    "strongly negative linear, wide": (1.0, 1e8, -1e7),
    "records": (5.0, 6.0, -1.0),
    "a fraction of a record": (0.2, 1e-3, 1e-3),
    "records, negative and wide": (4.0, 1e6, -1e5),
    "tens of records": (40.0, 50.0, -3.0),
    "hundreds of records": (400.0, 300.0, 2.0),
    "hundreds of records, negative": (300.0, 200.0, -40.0),
}


@pytest.mark.parametrize("case", SCALE_CASES.values(), ids=SCALE_CASES.keys())
@pytest.mark.parametrize("prior", [(3.0, 10.0), (3.0, 0.5)], ids=["wide", "narrow"])
def test_scales_follow_their_density(
    case: tuple[float, float, float], prior: tuple[float, float]
) -> None:
    cdf = integrated_cdf(lambda s: scale_log_density(s, *case, prior))
    draws = scale_draws(case, prior, start=prior[1])
    assert stats.kstest(draws, cdf).pvalue > LEVEL


@pytest.mark.parametrize("start", [1e-9, 1e9])
def test_scales_come_back_from_a_far_start(start: float) -> None:
    case, prior = (1.0, 2.0, 0.3), (3.0, 10.0)
    cdf = integrated_cdf(lambda s: scale_log_density(s, *case, prior))
    assert stats.kstest(scale_draws(case, prior, start), cdf).pvalue > LEVEL


def test_a_dropped_jacobian_of_scales_is_rejected() -> None:
    power, quadratic, linear = SCALE_CASES["two coefficients"]
    draws = scale_draws((power, quadratic, linear), (3.0, 10.0), start=1.0)
    for wrong in (power - 1.0, power + 1.0):
        cdf = integrated_cdf(
            lambda s, p=wrong: scale_log_density(s, p, quadratic, linear, (3.0, 10.0))
        )
        assert stats.kstest(draws, cdf).pvalue < 1e-12


def test_scales_of_a_batch_do_not_depend_on_each_other() -> None:
    """A bracket may look at the whole batch, but the distribution of a member may not."""
    rng = np.random.default_rng(6)
    power = np.where(np.arange(BATCH) % 2 == 0, 0.5, 5.0)
    quadratic = np.where(np.arange(BATCH) % 2 == 0, 1e-4, 50.0)
    s = np.ones(BATCH)
    for _ in range(10):
        uniforms = rng.random((2, BATCH))
        s = primitives.update_scales(s, power, quadratic, np.zeros(BATCH), (3.0, 1.0), uniforms)
    for part in (0, 1):
        case = (float(power[part]), float(quadratic[part]), 0.0)
        cdf = integrated_cdf(lambda x, c=case: scale_log_density(x, *c, (3.0, 1.0)))
        assert stats.kstest(s[part::2], cdf).pvalue > LEVEL


def test_scales_are_nearly_always_accepted_and_smooth_in_the_data() -> None:
    rng = np.random.default_rng(7)
    s, uniforms = np.exp(rng.normal(0, 1, BATCH)), rng.random((2, BATCH))
    arguments = (np.full(BATCH, 0.5), (3.0, 10.0), uniforms)
    moved = primitives.update_scales(s, 1.0, np.full(BATCH, 2.0), *arguments)
    nudged = primitives.update_scales(s, 1.0, np.full(BATCH, 2.0 + 1e-7), *arguments)
    assert (moved != s).mean() > 0.93
    assert np.quantile(np.abs(moved / nudged - 1), 0.999) < 1e-6


def test_grid_step_leaves_a_bimodal_density_invariant() -> None:
    def log_density(t: FloatArray) -> FloatArray:
        return np.logaddexp(-0.5 * (t / 0.05) ** 2, -np.abs(t - 3.0))

    rng = np.random.default_rng(8)
    t = np.linspace(-4.0, 40.0, 400_001)
    mass = np.cumsum(np.exp(log_density(t)))
    current = np.interp(rng.random(BATCH), mass / mass[-1], t)
    lower, upper = np.full(BATCH, -4.0), np.full(BATCH, 40.0)
    for _ in range(10):
        uniforms = rng.random((2, BATCH))
        current = primitives.grid_independence_step(log_density, current, lower, upper, uniforms)
    assert stats.kstest(current, lambda x: np.interp(x, t, mass / mass[-1])).pvalue > LEVEL


def test_half_t_log_density_is_that_of_scipy() -> None:
    s = np.geomspace(1e-6, 1e6, 50)
    ours = primitives.half_t_log_density(s, 3.0, 10.0)
    truth = stats.t.logpdf(s / 10.0, 3.0)
    np.testing.assert_allclose(np.diff(ours), np.diff(truth), rtol=1e-10, atol=1e-12)


VARIANCE_CASES = {
    "many records": (400.0, 36.0, 90.0, 1.0),
    "many records, no tilt": (400.0, 0.0, 90.0, 1.0),
    "small variance": (300.0, 300.0, 3e-4, 1.0),
    "large variance": (50.0, 1e-6, 5e9, 1.0),
    "few records": (3.0, 2.0, 4.0, 1.0),
    "one record": (1.0, 0.3, 0.2, 1.0),
    "a tenth of a record": (0.1, 0.01, 0.05, 1.0),
    "prior alone": (0.0, 0.0, 0.0, 1.0),
    "narrow prior": (5.0, 1.0, 20.0, 0.2),
    "wide prior": (5.0, 1e-4, 20.0, 50.0),
}


def variance_log_density(
    v: FloatArray, total: float, tilt: float, squares: float, scale: float
) -> FloatArray:
    """s = sqrt(v) is half-Cauchy(0, scale), dv = 2 s ds; the records give v^(-A/2) exp(...)."""
    prior = stats.halfcauchy.logpdf(np.sqrt(v), scale=scale) - 0.5 * np.log(v)
    return prior - 0.5 * total * np.log(v) - 0.5 * (tilt * v + squares / v)


def variance_draws(case: tuple[float, float, float, float], start: float) -> FloatArray:
    rng = np.random.default_rng(9)
    total, tilt, squares, scale = case
    v = np.full(BATCH, start)
    for _ in range(10):
        v = primitives.slice_variances(
            v, np.full(BATCH, total), np.full(BATCH, tilt), np.full(BATCH, squares), scale,
            rng.random(BATCH), rng.random((primitives.MAX_SHRINKS, BATCH)),
        )  # fmt: skip
    return v


@pytest.mark.parametrize("case", VARIANCE_CASES.values(), ids=VARIANCE_CASES.keys())
def test_variances_follow_their_density(case: tuple[float, float, float, float]) -> None:
    cdf = integrated_cdf(lambda v: variance_log_density(v, *case))
    assert stats.kstest(variance_draws(case, start=0.7), cdf).pvalue > LEVEL


def test_a_wrong_variance_density_is_rejected() -> None:
    case = VARIANCE_CASES["few records"]
    draws = variance_draws(case, start=0.7)
    jacobian = integrated_cdf(lambda v: variance_log_density(v, *case) + 0.5 * np.log(v))
    flat = integrated_cdf(lambda v: variance_log_density(v, *case) + np.log1p(v))
    untilted = integrated_cdf(lambda v: variance_log_density(v, case[0], 0.0, *case[2:]))
    for cdf in (jacobian, flat, untilted):
        assert stats.kstest(draws, cdf).pvalue < 1e-12


SHIFTED_CASES = {
    "weak prior": (100.0, 50.0, 1e-4, 0.02),
    "prior that pulls up": (10.0, 4.0, 2.0, 40.0),
    "prior that pulls far up": (5.0, 1e-3, 1.0, 100.0),
    "prior that pulls down": (10.0, 400.0, 0.5, -60.0),
    "prior that pulls far down": (3.0, 1e4, 1.0, -1e5),
    "few records": (2.1, 0.3, 0.01, 0.1),
    "many records": (1e4, 2e3, 5.0, -3.0),
    "hardly any residual": (30.0, 1e-14, 1.0, 1.0),
}


def shifted_log_density(
    v: FloatArray, total: float, squares: float, quadratic: float, linear: float
) -> FloatArray:
    usual = variance_log_density(v, total, 0.0, squares, 1.0)
    return usual + linear * v - 0.5 * quadratic * v**2


@pytest.mark.parametrize("case", SHIFTED_CASES.values(), ids=SHIFTED_CASES.keys())
def test_shifted_variances_follow_their_density(case: tuple[float, float, float, float]) -> None:
    rng = np.random.default_rng(18)
    v = np.full(BATCH, 0.7)
    for _ in range(12):
        v = primitives.slice_shifted_variances(
            v, *(np.full(BATCH, value) for value in case), 1.0,
            rng.random(BATCH), rng.random((primitives.MAX_SHRINKS, BATCH)),
        )  # fmt: skip
    cdf = integrated_cdf(lambda v: shifted_log_density(v, *case))
    assert stats.kstest(v, cdf).pvalue > LEVEL
    if case == SHIFTED_CASES["few records"]:
        wrong = integrated_cdf(lambda v: shifted_log_density(v, *case) + 0.5 * np.log(v))
        assert stats.kstest(v, wrong).pvalue < 1e-6


def test_variance_mode_is_a_stationary_point() -> None:
    p, a, b = np.array([-50.0, -1.0, 0.4]), np.array([3.0, 1e-9, 2.0]), np.array([8.0, 2.0, 1e-9])
    v = primitives.variance_mode(p, a, b, 1.0)
    np.testing.assert_allclose(p - 0.5 * (a * v - b / v), 0.0, atol=1e-9)
    empty = primitives.variance_mode(np.array([0.5]), np.zeros(1), np.zeros(1), 4.0)
    assert empty == 4.0


def inverse_wishart(df: float, root: FloatArray) -> FloatArray:
    q = root.shape[0]
    rng = np.random.default_rng(11)
    normals, uniforms = rng.standard_normal((BATCH, q, q)), rng.random((BATCH, q))
    inverse = root @ primitives.inverse_wishart_root(np.full(BATCH, df), normals, uniforms)
    return inverse @ inverse.swapaxes(-1, -2)


def summaries(matrix: FloatArray) -> dict[str, FloatArray]:
    return {
        "first variance": matrix[:, 0, 0],
        "last variance": matrix[:, -1, -1],
        "covariance": matrix[:, 0, -1],
        "determinant": np.linalg.det(matrix),
        "trace": np.trace(matrix, axis1=1, axis2=2),
    }


@pytest.mark.parametrize(("q", "df"), [(2, 3.5), (3, 4.2), (3, 60.0), (4, 9.0)])
def test_inverse_wishart_is_that_of_scipy(q: int, df: float) -> None:
    root = np.tril(np.random.default_rng(q).normal(size=(q, q))) + 2.0 * np.eye(q)
    scale = root @ root.T
    truth = stats.invwishart(df, scale).rvs(BATCH, random_state=12)
    draws = inverse_wishart(df, root)
    for name, values in summaries(draws).items():
        assert stats.ks_2samp(values, summaries(truth)[name]).pvalue > LEVEL, name
    marginal = stats.invgamma(0.5 * (df - q + 1), scale=0.5 * scale[0, 0])
    assert stats.kstest(draws[:, 0, 0], marginal.cdf).pvalue > LEVEL
    wrong = stats.invgamma(0.5 * (df - q + 2), scale=0.5 * scale[0, 0])
    # At 60 degrees of freedom one more is a shift of 1.7% where the spread is 19%.
    assert stats.kstest(draws[:, 0, 0], wrong.cdf).pvalue < 1e-6


def lkj_determinants(dimension: int, eta: float, rng: np.random.Generator) -> FloatArray:
    """|R| of LKJ(eta) by the D-vine of Lewandowski, Kurowicka and Joe (2009): independent partial
    correlations, symmetric beta."""
    result = np.ones(BATCH)
    for k in range(1, dimension):
        a = eta + 0.5 * (dimension - 1 - k)
        partial = 2.0 * rng.beta(a, a, (BATCH, dimension - k)) - 1.0
        result *= np.prod(1.0 - partial**2, axis=1)
    return result


@pytest.mark.parametrize(("dimension", "eta"), [(2, 6.0), (3, 1.0), (5, 6.0), (3, 2.5)])
def test_correlation_of_a_wishart_is_lkj(dimension: int, eta: float) -> None:
    rng = np.random.default_rng(13)
    columns = round(dimension - 1 + 2 * eta)
    correlation = primitives.wishart_correlation(rng.standard_normal((BATCH, dimension, columns)))
    np.testing.assert_allclose(np.einsum("bkk->bk", correlation), 1.0, rtol=1e-12)
    shape = eta - 1.0 + 0.5 * dimension
    marginal = stats.beta(shape, shape, loc=-1.0, scale=2.0)
    for i, j in ((1, 0), (dimension - 1, 0)):
        assert stats.kstest(correlation[:, i, j], marginal.cdf).pvalue > LEVEL
    wrong = stats.beta(1.3 * shape, 1.3 * shape, loc=-1.0, scale=2.0)
    assert stats.kstest(correlation[:, 1, 0], wrong.cdf).pvalue < 1e-4
    truth = lkj_determinants(dimension, eta, rng)
    assert stats.ks_2samp(np.linalg.det(correlation), truth).pvalue > LEVEL


def elliptical_steps(
    root: FloatArray, total: float, factor: FloatArray, rng: np.random.Generator, steps: int
) -> FloatArray:
    batch = root.shape[0]
    for _ in range(steps):
        root = primitives.elliptical_correlation(
            root, rng.standard_normal(root.shape), np.full(batch, total), factor,
            rng.random(batch), rng.random((primitives.MAX_SHRINKS, batch)),
        )  # fmt: skip
    return root


@pytest.mark.parametrize("total", [0.0, 2.0, 7.5])
def test_elliptical_update_follows_the_posterior_of_one_correlation(total: float) -> None:
    """K = 2: the posterior of r integrated numerically."""
    eta, squares = 6.0, np.array([[7.0, 5.0], [5.0, 6.0]]) * (total > 0)
    rng = np.random.default_rng(41)
    root = rng.standard_normal((5_000, 2, 13))
    values, vectors = np.linalg.eigh(squares)
    factor = np.broadcast_to(vectors * np.sqrt(np.maximum(values, 0)), (5_000, 2, 2))
    root = elliptical_steps(root, total, factor, rng, 30)
    draws = primitives.wishart_correlation(root)[:, 1, 0]
    r = np.linspace(-1, 1, 200_003)[1:-1]
    trace = (squares[0, 0] + squares[1, 1] - 2 * r * squares[0, 1]) / (1 - r**2)

    def pvalue(power: float) -> float:
        log_density = power * np.log1p(-(r**2)) - 0.5 * trace
        cdf = np.cumsum(np.exp(log_density - log_density.max()))
        return float(stats.kstest(draws, lambda x: np.interp(x, r, cdf / cdf[-1])).pvalue)

    assert pvalue(eta - 1.0 - 0.5 * total) > LEVEL
    assert pvalue(eta - 1.0 - 0.5 * (total + 3.0)) < 1e-5


@pytest.mark.parametrize("copies", [1, 100])
def test_normal_draws_have_the_mean_and_covariance_of_the_precision(copies: int) -> None:
    """The map from normals is affine: its offset is the mean, its root that of the covariance.

    Many matrices are decomposed in another way than few."""
    rng = np.random.default_rng(17)
    d = 4
    half = rng.normal(size=(1, d, d))
    precision = half @ half.swapaxes(-1, -2) + np.eye(d)
    linear = rng.normal(size=(1, d))
    size = copies * (d + 1)
    repeat = np.repeat(precision, size, 0), np.repeat(linear, size, 0)
    assert (size >= primitives.MANY * d * d) == (copies > 1)
    normals = np.tile(np.concatenate([np.zeros((1, d)), np.eye(d)]), (copies, 1))
    draws = primitives.normal_from_precision(*repeat, normals)[-d - 1 :]
    covariance = np.linalg.inv(precision[0])
    np.testing.assert_allclose(draws[0], covariance @ linear[0], rtol=1e-10)
    root = (draws[1:] - draws[0]).T
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-9, atol=1e-12)
    repeat[0][0] = -precision[0]
    with pytest.raises(np.linalg.LinAlgError):
        primitives.normal_from_precision(*repeat, normals)
