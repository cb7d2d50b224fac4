"""Posteriors from noisy statistics against independent ones: the ordinary fit where noise vanishes,
quadrature of the two moments of one mean, and Metropolis steps on single records (Ju, Awan, Gong &
Rao 2022). Wrong posteriors, which know less of the noise, are rejected by each.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.posterior.draws import sample_noisy
from surveysynth.mechanisms.noisy_statistics.posterior.model_adapters import implied_sample
from surveysynth.mechanisms.noisy_statistics.posterior.moments import NoisyMoments, PublicSums
from surveysynth.models import get_model
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import SWEEPS_AT_ONCE, Streams
from tests.long_runs import noisy_sbc, sbc

MODELS = ("FBS, two outcomes", "Normal with a weight", "FBP", "FBS, PSUs", "FBP, PSUs")


def database(
    name: str, seed: int, **changes: Any
) -> tuple[noisy_sbc.Case, NoisyMoments, PublicSums, FloatArray, FloatArray]:
    """A case, noisy moments of one database of it, X and its records z (n, q)."""
    case = replace(noisy_sbc.CASES[name], **changes)
    x = sbc.design_rows(sbc.Case(case.model, n=case.n, columns=case.columns))
    rng = np.random.default_rng(seed)
    while True:  # a database of the prior's centre, not of its tails
        theta = noisy_sbc.prior(case, 1, rng)
        sd = np.sqrt(np.einsum("bkk->bk", noisy_sbc.implied(theta, case.model)[1]))
        if np.all((sd > 0.3) & (sd < 0.9)):
            break
    z = noisy_sbc.records(theta, case, x, rng)
    centre = z[0].mean(0) - case.spread
    noisy, public = noisy_sbc.noisy_moments(case, z, x, centre, rng)
    return case, noisy, public, x, z[0]


def chain_means(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means (d,) and their standard errors, from chains (chains, draws, d) as replicates."""
    means = values.mean(axis=1)
    return means.mean(0), means.std(0, ddof=1) / np.sqrt(means.shape[0])


def largest_z(ours: FloatArray, truth: FloatArray) -> float:
    """Largest |z| of differences in mean, spread and variance, (chains, draws, d) each."""
    centre, scale = truth.mean((0, 1)), truth.std((0, 1))
    worst = 0.0
    squares, above = (lambda v: np.minimum(v * v, 16.0)), (lambda v: np.tanh(v) > 0.5)
    for function in (lambda v: v, np.abs, squares, above):
        one, se = chain_means(function((ours - centre) / scale).astype(np.float64))
        other, se_other = chain_means(function((truth - centre) / scale).astype(np.float64))
        error = np.sqrt(se**2 + se_other**2 + 1e-8)
        worst = max(worst, float(np.abs((one - other) / error).max()))
    return worst


def summaries(model: Any, theta: Theta) -> FloatArray:
    """Monitored scalars (chains, draws, d) of the first database."""
    return np.concatenate([values[0] for values in model.monitored(theta).values()], axis=-1)


@pytest.mark.parametrize("name", MODELS)
def test_without_noise_it_is_the_ordinary_posterior(name: str) -> None:
    case, noisy, public, x, z = database(name, 1, sigma=1e-4, squares_sd=1e-4)
    model = get_model(case.model, priors=case.priors)
    plan = SamplingPlan(chains=40, warmup=30, draws=15)
    ours = sample_noisy(model, noisy, public, plan, np.random.default_rng(2), thin=2)
    exact = sbc.stacked_stats(model, x, z[None], case.psus)
    truth = model.sample(exact, replace(plan, warmup=100, draws=50), np.random.default_rng(3))
    assert ours.keys() == truth.keys()
    for entry, values in truth.items():
        assert ours[entry].shape == (1, 40, 15, *values.shape[3:])
    assert largest_z(summaries(model, ours), summaries(model, truth)) < 4.5


def test_with_noise_it_is_another_one() -> None:
    """The comparison above can tell: with the noise of the case it fails."""
    case, noisy, public, x, z = database(MODELS[0], 1)
    model = get_model(case.model, priors=case.priors)
    plan = SamplingPlan(chains=40, warmup=30, draws=15)
    ours = sample_noisy(model, noisy, public, plan, np.random.default_rng(2), thin=2)
    exact = sbc.stacked_stats(model, x, z[None])
    truth = model.sample(exact, plan, np.random.default_rng(3))
    assert largest_z(summaries(model, ours), summaries(model, truth)) > 8


def quadrature(
    noisy: NoisyMoments, n: int, priors: dict[str, float]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Grid of (mean, log SD) of u and the posterior's mass on it, for records u ~ N(mean, SD^2):
    T and W integrated out by nodes, the scale of the mean's prior by quadrature."""
    t_noisy, q_noisy = noisy.cross[0, 0, 0], noisy.squares[0, 0, 0]
    centre, spread = noisy.centre[0], noisy.spread[0]
    mean, log_sd = np.linspace(-3.0, 3.0, 151), np.linspace(-4.0, 2.0, 121)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    chi2 = stats.chi2.ppf((np.arange(100) + 0.5) / 100, n - 1)
    scale = priors["coefficient_scale"]
    beta = centre + spread * mean
    prior = np.array([
        integrate.quad(
            lambda s, b=b: stats.norm.pdf(b, 0, s) * stats.t.pdf(s / scale, 3), 1e-8, np.inf
        )[0]
        for b in beta
    ])  # fmt: skip
    log_mass = np.empty((mean.size, log_sd.size))
    for j, sd in enumerate(np.exp(log_sd)):
        # T = n (mean + sd / sqrt(n) e): given T~ normal, and T~ itself.
        own, noise = n * sd**2, noisy.sigma**2
        posterior = n * mean + own / (own + noise) * (t_noisy - n * mean)
        t = posterior[:, None] + np.sqrt(own * noise / (own + noise)) * nodes
        gap = (t[:, :, None] ** 2 / n + sd**2 * chi2 - q_noisy) / noisy.squares_sd[0, 0]
        of_q = np.exp(-0.5 * gap * gap).mean(-1) @ weights  # up to a constant
        of_t = stats.norm.logpdf(t_noisy, n * mean, np.sqrt(own + noise))
        half_t = stats.t.logpdf(spread * sd / priors["residual_scale"], 3) + log_sd[j]
        log_mass[:, j] = np.log(prior) + of_t + np.log(of_q + 1e-300) + half_t
    mass = np.exp(log_mass - log_mass.max())
    return mean, log_sd, mass / mass.sum()


def normal_draws(sampler: Callable[..., Theta], noisy: NoisyMoments, n: int) -> FloatArray:
    """(mean, log SD) of u (chains, draws, 2) under a normal regression on an intercept."""
    public = PublicSums.of(np.ones((1, 1)), np.zeros(n, dtype=np.int64), np.ones((1, 1)))
    model = get_model("normal", priors=noisy_sbc.NORMAL_PRIORS)
    plan = SamplingPlan(chains=150, warmup=20, draws=15)
    theta = sampler(model, noisy, public, plan, np.random.default_rng(5), thin=4)
    mean = (theta["beta"][0, :, :, 0] - noisy.centre[0]) / noisy.spread[0]
    log_sd = 0.5 * np.log(theta["variance"][0, :, :, 0]) - np.log(noisy.spread[0])
    return np.stack([mean, log_sd], axis=-1)


def z_of_quadrature(draws: FloatArray, grid: tuple[FloatArray, FloatArray, FloatArray]) -> float:
    """Largest |z| of means, squares and tail shares against the grid."""
    *axes, mass = grid
    worst = 0.0
    for j, axis in enumerate(axes):
        margin = mass.sum(1 - j)
        centre, at = (margin * axis).sum(), np.cumsum(margin)
        step = axis[1] - axis[0]
        cuts = [float(np.interp(level, at, axis + 0.5 * step)) for level in (0.05, 0.5, 0.95)]
        functions = [lambda v: v, lambda v, c=centre: (v - c) ** 2]
        truths = [centre, (margin * (axis - centre) ** 2).sum()]
        functions += [lambda v, c=c: v < c for c in cuts]
        truths += [0.05, 0.5, 0.95]
        for function, truth in zip(functions, truths, strict=True):
            estimate, se = chain_means(function(draws[..., j, None]).astype(np.float64))
            worst = max(worst, float(abs(estimate[0] - truth) / np.hypot(se[0], 1e-4)))
    return worst


@pytest.mark.parametrize(("sigma", "squares_sd"), [(4.0, 8.0), (2.0, 40.0)])
def test_one_mean_agrees_with_quadrature(sigma: float, squares_sd: float) -> None:
    n = 30
    noisy = NoisyMoments(
        cross=np.array([[[25.0]]]), squares=np.array([[[38.0]]]), sigma=sigma,
        squares_sd=np.array([[squares_sd]]), centre=np.array([0.5]), spread=np.array([0.8]),
    )  # fmt: skip
    grid = quadrature(noisy, n, noisy_sbc.NORMAL_PRIORS)
    assert z_of_quadrature(normal_draws(sample_noisy, noisy, n), grid) < 4.5
    for wrong in (noisy_sbc.naive, noisy_sbc.without_noise_in_squares):
        assert z_of_quadrature(normal_draws(wrong, noisy, n), grid) > 8
    if squares_sd < 10:  # else Q~ says little
        forgetful = normal_draws(noisy_sbc.without_squares_in_cross, noisy, n)
        assert z_of_quadrature(forgetful, grid) > 8


def by_records(
    case: noisy_sbc.Case, noisy: NoisyMoments, public: PublicSums, x: FloatArray, plan: SamplingPlan
) -> Theta:
    """Draws of FBS with the records themselves as unknowns: each is proposed from the model and
    accepted by the density of the noise, given all others (Ju, Awan, Gong & Rao 2022)."""
    model = get_model(case.model, priors=case.priors)
    rng, b, n, q = np.random.default_rng(8), plan.chains, case.n, case.q
    white = x @ noisy_sbc.whitening(x)
    gram, x_gram = white.T @ white, np.repeat((x.T @ x)[None], b, axis=0)
    sd = noisy.squares_sd
    u = rng.standard_normal((b, n, q)) + 1.0
    cross = white.T @ u
    squares = u.swapaxes(-1, -2) @ u

    def log_noise(cross: FloatArray, squares: FloatArray) -> FloatArray:
        of_cross = ((cross - noisy.cross) ** 2).sum((-1, -2)) / noisy.sigma**2
        of_squares = np.tril(((squares - noisy.squares) / sd) ** 2).sum((-1, -2))
        return np.asarray(-0.5 * (of_cross + of_squares))

    def statistics() -> Any:
        z = noisy.centre + noisy.spread * u
        fit = np.linalg.solve(x_gram, x.T @ z)
        rest = z - x @ fit
        ones, residual = np.full(b, float(n)), rest.swapaxes(-1, -2) @ rest
        return GaussianStats(ones, np.repeat(x.sum(0)[None], b, axis=0), x_gram, fit, residual)

    implied = implied_sample(model)(statistics(), model.priors, Streams.of(rng, 1, b))
    assert gram.shape == public.white_gram.shape[1:]
    kept: dict[str, list[FloatArray]] = {}
    for sweep in range(plan.warmup + plan.draws):
        coefficients, covariance = implied.moments()
        root = np.linalg.cholesky(covariance)
        mean = x @ coefficients
        noise = rng.standard_normal((b, n, q)) @ root.swapaxes(-1, -2)
        proposals = (mean + noise - noisy.centre) / noisy.spread
        log_u = np.log(rng.random((n, b)))
        now = log_noise(cross, squares)
        for i in range(n):
            old, new = u[:, i], proposals[:, i]
            moved = cross + white[i][:, None] * (new - old)[:, None, :]
            other = squares + new[:, :, None] * new[:, None] - old[:, :, None] * old[:, None]
            there = log_noise(moved, other)
            accept = log_u[i] < there - now
            now = np.where(accept, there, now)
            u[:, i] = np.where(accept[:, None], new, old)
            cross = np.where(accept[:, None, None], moved, cross)
            squares = np.where(accept[:, None, None], other, squares)
        implied.observe(statistics())
        if sweep % SWEEPS_AT_ONCE == 0:
            implied.sampler.draw_random_numbers(SWEEPS_AT_ONCE)
        implied.sampler.sweep(sweep % SWEEPS_AT_ONCE)
        if sweep >= plan.warmup:
            for name, values in implied.sampler.state().items():
                kept.setdefault(name, []).append(values)
    return {name: np.stack(values, axis=1)[None] for name, values in kept.items()}


@pytest.mark.parametrize(
    ("n", "seed", "sweeps", "sigma", "squares_sd", "rejects"),
    [
        (30, 3, 100, 3.0, 4.0, ("no noise", "Q tells nothing of T")),
        (30, 3, 100, 2.5, 12.0, ("no noise", "no noise in Q")),
        # Single records move slower the more there are: of some databases of 50 a thousand sweeps
        # are no warm-up.
        (50, 4, 300, 2.0, 4.0, ("no noise", "Q tells nothing of T")),
    ],
)
def test_it_agrees_with_augmentation_record_by_record(
    n: int, seed: int, sweeps: int, sigma: float, squares_sd: float, rejects: tuple[str, ...]
) -> None:
    case, noisy, public, x, _ = database(
        "FBS, one outcome", seed, n=n, columns=2, sigma=sigma, squares_sd=squares_sd
    )
    model = get_model(case.model, priors=case.priors)
    records = SamplingPlan(chains=100, warmup=sweeps, draws=round(0.8 * sweeps))
    truth = summaries(model, by_records(case, noisy, public, x, records))
    plan = SamplingPlan(chains=100, warmup=30, draws=15)
    fits = {
        name: summaries(model, sampler(model, noisy, public, plan, np.random.default_rng(9), 3))
        for name, sampler in noisy_sbc.SAMPLERS.items()
        if name in ("sound", *rejects)
    }
    assert largest_z(fits.pop("sound"), truth) < 4.5
    for name, wrong in fits.items():
        assert largest_z(wrong, truth) > 7, name


@pytest.mark.parametrize("name", MODELS)
def test_draws_of_a_database_do_not_depend_on_its_batch(name: str) -> None:
    case, first, public, x, z = database(name, 4)
    other, _ = noisy_sbc.noisy_moments(case, z[None], x, first.centre, np.random.default_rng(7))
    model = get_model(case.model, priors=case.priors)
    plan = SamplingPlan(chains=2, warmup=10, draws=10)
    alone = sample_noisy(model, other, public, plan, [np.random.default_rng(1)])
    both = sample_noisy(
        model, NoisyMoments.stacked([first, other]), PublicSums.stacked([public, public]), plan,
        [np.random.default_rng(0), np.random.default_rng(1)],
    )  # fmt: skip
    for entry, values in alone.items():
        np.testing.assert_allclose(both[entry][1:], values, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", [0.01, 1.0, 1e3, 1e6])
def test_noise_of_any_size_leaves_draws_finite(name: str, scale: float) -> None:
    """Also where the noisy squares are far from positive definite, and degrees of freedom few."""
    case, noisy, public, _, _ = database(name, 5, n=40)
    rng = np.random.default_rng(6)
    noisy = replace(
        noisy,
        cross=noisy.cross + scale * rng.standard_normal(noisy.cross.shape),
        squares=noisy.squares - 3.0 * scale * np.eye(case.q),
        sigma=scale,
        squares_sd=3.0 * scale * np.ones((case.q, case.q)),
    )
    model = get_model(case.model, priors=case.priors)
    theta = sample_noisy(model, noisy, public, SamplingPlan(4, 30, 30), rng)
    for entry, values in theta.items():
        assert np.all(np.isfinite(values)), entry
    moved = np.diff(summaries(model, theta), axis=1) != 0
    assert moved.mean() > 0.5


def test_few_degrees_of_freedom_are_enough_or_refused() -> None:
    case, noisy, public, _, _ = database("FBS, one outcome", 7, n=7)
    model = get_model(case.model, priors=case.priors)
    plan = SamplingPlan(2, 50, 20)
    theta = sample_noisy(model, noisy, public, plan, np.random.default_rng(0))
    assert all(np.all(np.isfinite(values)) for values in theta.values())
    case, noisy, public, _, _ = database("FBS, one outcome", 7, n=6)
    with pytest.raises(InputError, match=r"3 degrees of freedom .* needs more than 3"):
        sample_noisy(model, noisy, public, plan, np.random.default_rng(0))


def test_models_without_such_statistics_are_refused() -> None:
    _, noisy, public, _, _ = database("FBS, one outcome", 7)
    for name in ("poisson", "normal_mixture"):
        with pytest.raises(InputError, match=rf"{name}.*'fbs', 'normal', 'fbp'"):
            sample_noisy(get_model(name), noisy, public, SamplingPlan(), np.random.default_rng(0))
