"""Cases of Stan's densities, the embedded ones in Stan's coordinates, and what was kept of Stan's.

``python -m tests.stan.density_cases`` compiles every program and keeps its densities at FEW
points, so that a test without a compiler compares with Stan itself.
"""

import json
import warnings
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from scipy.linalg import block_diag

from surveysynth._support.resources import stan_directory
from surveysynth.sampling.stan.pystan import compile_program
from surveysynth.sampling.stan.source import flattened_source
from tests import oracles
from tests.models.model_cases import MODELS, SHRUNKEN, WEIGHTINGS, make_case
from tests.models.test_density import direct

KEPT = Path(__file__).parents[1] / "golden" / "stan_densities.json"
PROGRAMS = stan_directory()
#: Points of a case in a comparison with the compiled program, and those that are kept.
POINTS, FEW = 50, 2
#: A step whose square is lost beside 1: imaginary parts are derivatives to rounding.
STEP = 1e-30j


@dataclass(frozen=True)
class DensityCase:
    """A model with q columns, options of its data, and the seed of its points."""

    name: str
    q: int
    options: dict = field(default_factory=dict)
    points: int = POINTS
    seed: int = 1

    @property
    def program(self):
        """The name of its program."""
        return self.name.removesuffix(" shrunken")

    def made(self):
        """The data, and points (p, d)."""
        case = make_case(self.name, self.q, **self.options)
        return case, case.points(self.points, np.random.default_rng(self.seed))


def other_priors(name):
    """Priors that are not the defaults."""
    hierarchical = {"lkj": 1.0, "coefficient_scale": 3.0}
    own = {"fbp": {"residual_scale": 0.7, "coefficient_sd": 3.0}}
    own |= {model: {**hierarchical, "residual_scale": 0.7} for model in ("fbs", "normal")}
    own["normal_mixture"] = {**hierarchical, "least_sd": 0.3, "concentration_rate": 2.0}
    own["negative_binomial"] = {**hierarchical, "overdispersion_scale": 0.3}
    return own.get(name, hierarchical)


CASES = {
    **{
        f"{name} {q} {weighting}": DensityCase(name, q, {"weighting": weighting})
        for name, q in MODELS
        for weighting in WEIGHTINGS
    },
    **{
        f"{name} {q}": DensityCase(name, q, {"priors": {"interaction_scale": 0.4}})
        for name, q in SHRUNKEN
    },
    **{
        f"{name} {q} one column": DensityCase(
            name, q, {"k": 1, "priors": other_priors(name)}, points=5, seed=2
        )
        for name, q in MODELS
    },
}


def build(path, data, seed=1):
    """A compiled program with its data."""
    with warnings.catch_warnings():
        # PyStan's way to its compiler is a local web server of an older style.
        warnings.simplefilter("ignore")
        import stan

        code = flattened_source(path)
        compile_program(code)
        return stan.build(code, data=data, random_seed=seed)


def stan_density(case, points):
    """Stan's values (p,) and gradients (p, d); of a mixture, which has no other, values alone."""
    spec = case.model.stan
    built = build(PROGRAMS / spec.program, spec.data(case.stats, case.model.priors))
    value = [built.log_prob(list(point), adjust_transform=True) for point in points]
    mixture = case.model.name == "normal_mixture"
    return np.array(value), np.array(
        [] if mixture else [built.grad_log_prob(list(point)) for point in points]
    )


def digest(case):
    """Of the text of a case's program."""
    text = flattened_source(PROGRAMS / case.model.stan.program)
    return sha256(text.encode()).hexdigest()[:12]


def unwhitened(case, u):
    """The embedded u (d,) of the u of ``fbs.stan``, and log |d beta / d white|: beta given all else
    is normal, with mean and precision by record-free generalized least squares, and white are its
    standard normal coordinates by the precision's Cholesky factor. Analytic, so that complex steps
    give its derivatives."""
    k, q = case.shape[:2]
    free = k - case.shrunken  # the others have their prior in the statistics
    pairs, corr = q * (q - 1) // 2, free * (free - 1) // 2
    sizes = np.cumsum([k * q, q, pairs, free * q, corr])
    white, log_sd, cor_u, log_scale, omega_u, _ = np.split(u, sizes)
    residual = np.exp(log_sd)[:, None] * correlation_root(cor_u, q)
    precision = np.linalg.inv(residual @ residual.T)
    omega = correlation_root(omega_u, free)
    prior = [
        np.pad(np.linalg.inv(np.outer(scale, scale) * (omega @ omega.T)), (0, k - free))
        for scale in np.exp(log_scale).reshape(q, free)
    ]
    gram, cross = case.stats.gram[0], case.stats.gram[0] @ case.stats.fit[0]
    whole = np.kron(precision, gram) + block_diag(*prior)
    root = cholesky(whole)
    mean = np.linalg.solve(whole, (cross @ precision).T.reshape(-1))
    beta = mean + np.linalg.solve(root.T, white)
    return np.concatenate([beta, u[k * q :]]), -np.log(np.diag(root)).sum()


def cholesky(matrix):
    """The lower factor without conjugates: NumPy's is not analytic."""
    root = np.zeros_like(matrix)
    for j in range(len(matrix)):
        left = matrix[j:, j] - root[j:, :j] @ root[j, :j]
        root[j:, j] = left / np.sqrt(left[0])
    return root


def correlation_root(u, size):
    """Stan's Cholesky factor of a correlation matrix, row by row from tanh (its manual, 10.12)."""
    root, position = np.zeros((size, size), dtype=u.dtype), 0
    for i in range(size):
        left = 1.0
        for j in range(i):
            root[i, j] = np.tanh(u[position]) * np.sqrt(left)
            left, position = left - root[i, j] ** 2, position + 1
        root[i, i] = np.sqrt(left)
    return root


def embedded_density(case, points):
    """Value and gradient of the model's density in the coordinates of its program."""
    if case.model.name == "normal_mixture":
        return np.array([direct(case, point) for point in points]), np.array([])
    if case.model.name != "fbs":
        return oracles.log_density(case.model, points, case.stats)
    values, gradients = [], []
    for point in points:
        u, volume = unwhitened(case, point)
        value, gradient = oracles.log_density(case.model, u, case.stats)
        steps = [unwhitened(case, point + STEP * each) for each in np.eye(point.size)]
        values.append(value + volume)
        gradients.append([(gradient @ x.imag + v.imag) / STEP.imag for x, v in steps])
    return np.array(values), np.array(gradients)


def assert_same(case, points, stan_value, stan_gradient):
    """Compare with Stan's values (p,) and gradients (p, d)."""
    value, gradient = embedded_density(case, points)
    # A mixture's densities record by record are sums of many that nearly cancel.
    np.testing.assert_allclose(
        value, stan_value, rtol=1e-8, atol=0.0 if gradient.size else 1e-6
    )
    if gradient.size:
        # Relative to the size of a point's gradient: single elements pass through zero.
        scale = np.abs(stan_gradient).max(axis=1, keepdims=True)
        np.testing.assert_array_less(np.abs(gradient - stan_gradient) / scale, 1e-8)


def main():
    """Keep Stan's densities."""
    kept = {}
    for name, each in CASES.items():
        case, points = each.made()
        value, gradient = stan_density(case, points[:FEW])
        kept[name] = {
            "program": digest(case), "value": value.tolist(), "gradient": gradient.tolist()
        }  # fmt: skip
        print(name, flush=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in kept.items())
    KEPT.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
