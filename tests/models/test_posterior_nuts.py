"""FBS and FBP against nutpie's NUTS on the plain density of every record, written here in JAX from
methods 2 and 3 alone: no sufficient statistics, correlations by partial correlations.

Posterior means and variances agree within Monte Carlo error, for every parameter; a sampler whose
residual SD is scaled by 1.1 is rejected.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

# One record set is small: threads of the compiler's runtime only get in each other's way.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

with warnings.catch_warnings():
    # ArviZ, which nutpie loads, announces its successor on import.
    warnings.simplefilter("ignore")
    # It stamps a file of the day, which another worker may have moved in between: try twice.
    with suppress(FileNotFoundError):
        import arviz  # noqa: F401
    import nutpie
    from arviz.stats import ess
    from nutpie.compiled_pyfunc import from_pyfunc

from surveysynth._support.types import FloatArray, Theta  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from tests.models.model_designs import group_design, records_of, rows_of  # noqa: E402

jax.config.update("jax_enable_x64", True)

N, K = 150, 3
DESIGN = group_design(N, K)
RNG = np.random.default_rng(20)
#: Risk weights: some records out, some whole, the rest between.
ALPHA = np.clip(RNG.uniform(-0.1, 1.2, N), 0.0, 1.0)
X = rows_of(DESIGN)

Draws = dict[str, FloatArray]
Density = Callable[[jnp.ndarray], jnp.ndarray]


def outcomes(model: str) -> FloatArray:
    """Two correlated columns. Their coefficients lie away from zero, where a hierarchical scale
    would be a funnel that NUTS does not enter."""
    second = np.array([-2.0, 1.0, 1.5]) if model == "fbs" else np.array([-0.8, 0.5, 0.7])
    beta = np.column_stack([[2.0, 1.0, -1.2], second])
    noise = RNG.standard_normal((N, 2)) @ np.array([[0.4, 0.25], [0.0, 0.35]])
    return X @ beta + noise


def half_t3(s: jnp.ndarray, scale: float) -> jnp.ndarray:
    return -2.0 * jnp.log1p((s / scale) ** 2 / 3.0)


def lkj_cholesky(y: jnp.ndarray, dimension: int, eta: float) -> tuple[jnp.ndarray, jnp.ndarray]:
    """Root of a correlation matrix from unconstrained y, and the log density of y under LKJ(eta):
    the partial correlations tanh(y) given earlier rows are independent symmetric betas
    (Lewandowski, Kurowicka and Joe 2009)."""
    rows, log_density, at = [[1.0] + [0.0] * (dimension - 1)], 0.0, 0
    for i in range(1, dimension):
        row, left = [], 1.0
        for j in range(i):
            partial = jnp.tanh(y[at])
            power = eta + 0.5 * (dimension - 2 - j) - 1.0
            log_density += (power + 1.0) * jnp.log1p(-(partial**2))
            row.append(partial * jnp.sqrt(left))
            left *= 1.0 - partial**2
            at += 1
        rows.append([*row, jnp.sqrt(left)] + [0.0] * (dimension - 1 - i))
    return jnp.stack([jnp.stack([jnp.asarray(v) for v in row]) for row in rows]), log_density


def normal_by_root(deviation: jnp.ndarray, root: jnp.ndarray) -> jnp.ndarray:
    """Log density of N(0, root root') at each row, without 2 pi."""
    white = jax.scipy.linalg.solve_triangular(root, deviation.T, lower=True)
    return -0.5 * (white**2).sum(0) - jnp.log(jnp.diag(root)).sum()


def fbs_density(z: FloatArray) -> Density:
    def log_density(u: jnp.ndarray) -> jnp.ndarray:
        beta, log_scale = u[: 2 * K].reshape(2, K), u[2 * K : 4 * K].reshape(2, K)
        log_sd, y_omega, y_residual = u[4 * K : 4 * K + 2], u[4 * K + 2 : -1], u[-1:]
        root, total = lkj_cholesky(y_omega, K, 6.0)
        for part in range(2):
            scale = jnp.exp(log_scale[part])
            total += normal_by_root(beta[part][None], scale[:, None] * root)[0]
            total += (half_t3(scale, 10.0) + log_scale[part]).sum()
        residual_root, log_lkj = lkj_cholesky(y_residual, 2, 6.0)
        sd = jnp.exp(log_sd)
        total += log_lkj + (half_t3(sd, 10.0) + log_sd).sum()
        each = normal_by_root(z - X @ beta.T, sd[:, None] * residual_root)
        return total + (ALPHA * each).sum()

    return log_density


def fbp_density(z: FloatArray) -> Density:
    def log_density(u: jnp.ndarray) -> jnp.ndarray:
        beta, k_y, k_x, log_sd = u[:K], u[K], u[K + 1 : 2 * K + 1], u[-2:]
        total = -0.5 * (u[: 2 * K + 1] ** 2).sum() / 100.0
        s_y, s_pi = jnp.exp(log_sd)
        total += (log_sd - jnp.log1p(jnp.exp(2.0 * log_sd))).sum()
        mean_y, shift = X @ beta, X @ k_x
        y, log_pi = z.T
        each = -0.5 * ((y - mean_y) / s_y) ** 2 - log_sd[0]
        each += -0.5 * ((log_pi - k_y * y - shift) / s_pi) ** 2 - log_sd[1]
        each -= shift + 0.5 * s_pi**2 + k_y * mean_y + 0.5 * (k_y * s_y) ** 2
        return total + (ALPHA * each).sum()

    return log_density


def nuts(log_density: Density, dimension: int) -> FloatArray:
    """Draws (chains, draws, dimension) of the unconstrained parameters."""
    compiled = jax.jit(jax.value_and_grad(log_density))

    def logp(u: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = compiled(u)
        return float(value), np.asarray(gradient)

    model = from_pyfunc(
        dimension,
        lambda: logp,
        lambda *_: lambda u: {"u": u},
        [np.dtype(np.float64)],
        [(dimension,)],
        ["u"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = nutpie.sample(
            model, draws=800, tune=300, chains=2, seed=21, cores=2, progress_bar=False,
            target_accept=0.95, low_rank_modified_mass_matrix=True, save_warmup=False,
        )  # fmt: skip
    assert float(trace.sample_stats["diverging"].mean()) < 0.002
    return np.asarray(trace.posterior["u"])


def correlations(root: FloatArray) -> FloatArray:
    """Fisher's z of the correlations below the diagonal of matrices (..., d, d)."""
    row, column = np.tril_indices(root.shape[-1], -1)
    return np.arctanh(root[..., row, column])


def correlations_of(y: FloatArray, dimension: int) -> FloatArray:
    """The same from unconstrained partial correlations y (chains, draws, ...)."""
    root = jax.vmap(jax.vmap(lambda v: lkj_cholesky(v, dimension, 6.0)[0]))(y)
    return correlations(np.asarray(root @ root.swapaxes(-1, -2)))


def fbs_of_nuts(u: FloatArray) -> Draws:
    return {
        "beta": u[..., : 2 * K],
        "log_coefficient_scale": u[..., 2 * K : 4 * K],
        "log_residual_sd": u[..., 4 * K : 4 * K + 2],
        "coefficient_correlation": correlations_of(u[..., 4 * K + 2 : -1], K),
        "residual_correlation": correlations_of(u[..., -1:], 2),
    }


def fbs_of_gibbs(theta: Theta) -> Draws:
    covariance = theta["covariance"]
    sd = np.sqrt(np.einsum("...kk->...k", covariance))
    lead = sd.shape[:2]
    return {
        "beta": theta["beta"].swapaxes(-1, -2).reshape(*lead, -1),
        "log_coefficient_scale": np.log(theta["coefficient_scale"]).reshape(*lead, -1),
        "log_residual_sd": np.log(sd),
        "coefficient_correlation": correlations(theta["coefficient_correlation"]),
        "residual_correlation": correlations(covariance / (sd[..., None] * sd[..., None, :])),
    }


def fbp_of_nuts(u: FloatArray) -> Draws:
    return {
        "beta": u[..., :K],
        "selection": u[..., K : 2 * K + 1],
        "log_residual_sd": u[..., -2:],
    }


def fbp_of_gibbs(theta: Theta) -> Draws:
    return {
        "beta": theta["beta"],
        "selection": theta["selection"],
        "log_residual_sd": 0.5 * np.log(theta["variance"]),
    }


CASES = {
    "fbs": (fbs_density, 4 * K + 2 + 3 + 1, fbs_of_nuts, fbs_of_gibbs),
    "fbp": (fbp_density, 2 * K + 3, fbp_of_nuts, fbp_of_gibbs),
}


def columns(draws: Draws) -> dict[str, FloatArray]:
    """Single parameters (chains, draws) by name."""
    return {f"{k}[{j}]": v[..., j] for k, v in draws.items() for j in range(v.shape[-1])}


def mean_and_error(x: FloatArray) -> tuple[float, float]:
    return float(x.mean()), float(x.std() / np.sqrt(ess(x, method="mean")))


def z_scores(ours: Draws, theirs: Draws) -> dict[str, tuple[float, float, float]]:
    """By parameter: z of the difference of means, z of that of variances, ratio of SDs."""
    result = {}
    theirs_by_name = columns(theirs)
    for name, x in columns(ours).items():
        y = theirs_by_name[name]
        centre = 0.5 * (x.mean() + y.mean())
        z = []
        for a, b in ((x, y), ((x - centre) ** 2, (y - centre) ** 2)):
            (mean_a, error_a), (mean_b, error_b) = mean_and_error(a), mean_and_error(b)
            z.append((mean_a - mean_b) / np.hypot(error_a, error_b))
        result[name] = (float(z[0]), float(z[1]), float(x.std() / y.std()))
    return result


@pytest.mark.parametrize("name", CASES)
def test_posterior_equals_that_of_nuts(name: str) -> None:
    density, dimension, of_nuts, of_gibbs = CASES[name]
    z = outcomes(name)
    theirs = of_nuts(nuts(density(z), dimension))
    model = get_model(name)
    stats = model.compress(records_of(DESIGN, z), ALPHA)
    plan = SamplingPlan(chains=4, warmup=300, draws=3000)
    theta = model.sample(stats, plan, np.random.default_rng(22))
    ours = of_gibbs({key: values[0] for key, values in theta.items()})
    scores = z_scores(ours, theirs)
    assert set(scores) == set(columns(theirs))
    for parameter, (of_mean, of_variance, ratio) in scores.items():
        assert abs(of_mean) < 4.0, (parameter, of_mean)
        assert abs(of_variance) < 4.0, (parameter, of_variance)
        assert 0.85 < ratio < 1.18, (parameter, ratio)
    wrong = {**ours, "log_residual_sd": ours["log_residual_sd"] + np.log(1.1)}
    rejected = z_scores(wrong, theirs)
    assert all(rejected[f"log_residual_sd[{j}]"][0] > 8.0 for j in range(2))
