"""Numerically extreme data give finite draws without a warning (warnings are errors here), and a
fit moves smoothly with the data (common random numbers)."""


import numpy as np
import pytest

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models import get_model
from surveysynth.sampling import convergence
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign
from tests.models.model_designs import (
    continuous_design,
    group_design,
    make_design,
    records_of,
    rows_of,
)

PLAN = SamplingPlan(chains=2, warmup=40, draws=40)
each_model = pytest.mark.parametrize("name", ["fbs", "fbp"])


def simulated_z(design: PublicDesign, outcome_sd: float = 0.5, level: float = 0.0) -> FloatArray:
    rng = np.random.default_rng(70)
    x = rows_of(design)
    noise = rng.standard_normal((design.n, 2))
    y = level + outcome_sd * (x @ np.linspace(1.0, -1.0, x.shape[1]) + noise[:, 0])
    second = -0.5 * noise[:, 0] + 0.4 * noise[:, 1] + 0.2 * x[:, -1]
    return np.column_stack([y, second])


def fit(name: str, design: PublicDesign, z: FloatArray, alpha: FloatArray) -> Theta:
    model = get_model(name)
    stats = model.compress(records_of(design, z), alpha)
    theta = model.sample(stats, PLAN, np.random.default_rng(71))
    for key, values in theta.items():
        assert np.all(np.isfinite(values)), key
    for key, values in model.monitored(theta).items():
        assert np.all(np.isfinite(values)), key
    flat = {key: values.reshape(-1, *values.shape[3:])[::20] for key, values in theta.items()}
    for _, log_lik in model.log_lik_blocks(flat, records_of(design, z)):
        assert np.all(np.isfinite(log_lik))
    return theta


@each_model
@pytest.mark.parametrize("scale", [1e-3, 1e4])
@pytest.mark.parametrize("level", [0.0, 1e5])
def test_scale_and_level_of_the_outcome(name: str, scale: float, level: float) -> None:
    design = group_design(200, 3)
    fit(name, design, simulated_z(design, scale, level), np.full(200, 0.7))


@each_model
@pytest.mark.parametrize("total", [0.0, 1e-12, 1e-3, 0.3, 1.0, 2.5, 4.0, 4.01, 5.0, 8.0, 20.0])
def test_few_effective_records(name: str, total: float) -> None:
    design = group_design(200, 3)
    rng = np.random.default_rng(72)
    alpha = rng.random(200)
    fit(name, design, simulated_z(design), alpha * total / alpha.sum())


@each_model
@pytest.mark.parametrize("records", [1, 2, 4, 6, 12])
def test_few_records_with_weight(name: str, records: int) -> None:
    """All other weights are zero: columns without data, perfect fits."""
    design = continuous_design(200, 5)
    alpha = np.zeros(200)
    alpha[:records] = 1.0
    fit(name, design, simulated_z(design), alpha)


@each_model
@pytest.mark.parametrize("make", [group_design, continuous_design])
@pytest.mark.parametrize("weight", [0.01, 0.8])
def test_many_columns(name: str, make: type, weight: float) -> None:
    design = make(500, 40)
    fit(name, design, simulated_z(design), np.full(500, weight))


@each_model
@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9, 0.0])
def test_nearly_collinear_columns(name: str, distance: float) -> None:
    rng = np.random.default_rng(73)
    x = np.column_stack([np.ones(150), rng.normal(size=150), np.zeros(150)])
    x[:, 2] = x[:, 1] + distance * rng.normal(size=150)
    design = make_design(x, np.arange(150))
    fit(name, design, simulated_z(design), np.full(150, 0.5))


@each_model
def test_predictors_on_very_different_scales(name: str) -> None:
    rng = np.random.default_rng(74)
    x = np.column_stack([np.ones(150), 1e6 * rng.normal(size=150), 1e-6 * rng.normal(size=150)])
    design = make_design(x, np.arange(150))
    z = rng.normal(size=(150, 2)) + np.array([3.0, 1.0])
    fit(name, design, z, np.full(150, 0.5))


@each_model
def test_one_outlier_far_away(name: str) -> None:
    design = group_design(200, 3)
    z = simulated_z(design)
    z[0] = [1e4, -1e2]
    alpha = np.ones(200)
    alpha[0] = 1e-6
    fit(name, design, z, alpha)


@each_model
def test_nearly_deterministic_second_column(name: str) -> None:
    design = group_design(200, 3)
    z = simulated_z(design)
    z[:, 1] = -0.5 * z[:, 0] + 1e-4 * np.random.default_rng(75).normal(size=200)
    fit(name, design, z, np.full(200, 0.9))


def summary(name: str, theta: Theta, database: int = 0) -> dict[str, FloatArray]:
    monitored = get_model(name).monitored({k: v[database] for k, v in theta.items()})
    return {key: values.reshape(-1, values.shape[-1]) for key, values in monitored.items()}


@pytest.mark.parametrize("slope", [-0.5, -6.0])
@pytest.mark.parametrize("sd", [0.3, 4.0])
def test_fbp_mixes_where_inclusion_varies_widely(slope: float, sd: float) -> None:
    """Strong selection and log inclusion probabilities from narrow to very wide."""
    design, rng = group_design(500, 4), np.random.default_rng(81)
    noise = rng.standard_normal((2, 500))
    z = np.column_stack([10.0 + 0.5 * noise[0], slope * 0.5 * noise[0] + sd * noise[1]])
    model = get_model("fbp")
    stats = model.compress(records_of(design, z), np.full(500, 0.7))
    theta = model.sample(stats, SamplingPlan(4, 200, 250), np.random.default_rng(82))
    for key, values in model.monitored({k: v[0] for k, v in theta.items()}).items():
        assert convergence.effective_sample_size(values).min() > 250.0, key
        assert convergence.r_hat(values).max() < 1.05, key


@pytest.mark.parametrize("correlation", [0.0, -0.95])
@pytest.mark.parametrize(("outcomes", "total"), [(1, 15.0), (1, 60.0), (2, 60.0), (3, 250.0)])
def test_fbs_mixes_with_few_records_and_strong_correlations(
    correlation: float, outcomes: int, total: float
) -> None:
    design, rng = group_design(300, 3, outcomes), np.random.default_rng(86)
    covariance = np.full((outcomes + 1, outcomes + 1), abs(correlation))
    covariance[-1, :-1] = covariance[:-1, -1] = correlation
    np.fill_diagonal(covariance, 1.0)
    root = 0.5 * np.linalg.cholesky(covariance)
    z = 2.0 + rng.standard_normal((300, outcomes + 1)) @ root.T
    model = get_model("fbs")
    stats = model.compress(records_of(design, z), np.full(300, total / 300))
    theta = model.sample(stats, SamplingPlan(4, 250, 250), np.random.default_rng(87))
    for key, values in model.monitored({k: v[0] for k, v in theta.items()}).items():
        assert convergence.effective_sample_size(values).min() > 150.0, key
        assert convergence.r_hat(values).max() < 1.05, key


@each_model
def test_a_fit_moves_smoothly_with_the_weights(name: str) -> None:
    """Common random numbers: another 1e-6 of weight moves posterior means by next to nothing of
    their Monte Carlo error, another stream by about all of it."""
    design, model = group_design(300, 3), get_model(name)
    records = records_of(design, simulated_z(design))
    alpha = np.random.default_rng(78).uniform(0.2, 1.0, 300)
    plan = SamplingPlan(chains=4, warmup=100, draws=250)

    def means(weights: FloatArray, seed: int) -> dict[str, FloatArray]:
        stats = model.compress(records, weights)
        theta = model.sample(stats, plan, np.random.default_rng(seed))
        return {key: values.mean(0) for key, values in summary(name, theta).items()}

    first = means(alpha, 79)
    nudged = means(alpha * (1.0 - 1e-6), 79)
    other = means(alpha, 80)
    for key, values in first.items():
        noise = np.abs(other[key] - values).max()
        assert np.abs(nudged[key] - values).max() < 0.15 * noise, key
