"""Formulas of the technical report, computed a second time and compared with the package's results.

Truth: the formulas of methods 2, 3, 5 and 6, and of strict 1, written out with NumPy and SciPy; the
numbers of comments are their sections.
"""

import numpy as np
import pandas as pd
from scipy import stats

import surveysynth as ss
from surveysynth.estimation.replication import preston_multipliers
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import noise_variances, rho_spent


def test_formulas_of_the_methods() -> None:
    rng, n = np.random.default_rng(2), 400
    frame = pd.DataFrame(
        {"field": np.repeat(["a", "b"], n // 2), "group": np.tile(["f", "m"], n // 2)}
    )
    log_y = rng.normal(10 + 0.3 * (frame["field"] == "b"), 0.4)
    frame["y"], frame["w"] = np.exp(log_y), np.exp(14 - log_y + rng.normal(0, 0.4, n))
    survey = ss.Survey.from_frame(
        frame,
        outcome="y",
        weight="w",
        strata="field",
        by=["field", "group"],
        population_size=40_000,
    )
    design, confidential = survey.design, survey.confidential

    model = ss.get_model("fbs")
    settings = ss.MechanismSettings(epsilon=10.8, m=3, plan=ss.SamplingPlan(4, 100, 100))
    assert settings.origin == "peak"
    private, fit = ss.run_mechanism(model, design, confidential, settings, rng)

    theta = {name: values.reshape(-1, *values.shape[2:]) for name, values in fit.theta.items()}
    log_lik = np.empty((400, n))
    for rows, block in model.log_lik_blocks(theta, model.records(design, confidential)):
        log_lik[:, rows] = block
    highest, lowest = log_lik.max(axis=0), log_lik.min(axis=0)
    origin = 1.8 - np.quantile((highest + lowest) / 2, 0.98)  # 2.2
    f, o = np.abs(log_lik + origin).max(axis=0), highest - lowest
    bound = (fit.risk_weights * np.maximum(f, o)).max()
    assert 0.97 * 1.8 <= bound <= 1.8 == settings.target_bound  # 2.3 and 2.6
    assert np.isclose(fit.realised_epsilon, 2 * 3 * bound)
    assert np.allclose(fit.risk_weights, np.minimum(1, 1.773 / np.maximum(f, o)), rtol=0.4)  # 2.5

    x = design.matrix.x_cells[design.matrix.cell]
    z = np.column_stack([np.log(confidential.outcome[:, 0]), np.log(confidential.sampling_weight)])
    beta, sigma = theta["beta"][0], theta["covariance"][0]
    written = [
        stats.multivariate_normal(mean, sigma).logpdf(row)
        for mean, row in zip(x @ beta, z, strict=True)
    ]
    assert np.allclose(log_lik[0], written)  # 3.2

    draw = private.draw(0)
    data = model.simulate(draw, design, rng, "release")
    beta, sigma = draw["beta"], draw["covariance"]
    slope = sigma[1, 0] / sigma[0, 0]
    log_mean = x @ beta[:, 1] + slope * (data.z[:, 0] - x @ beta[:, 0])
    smoothed = np.exp(log_mean + (sigma[1, 1] - slope * sigma[0, 1]) / 2)
    assert np.allclose(model.smooth_weight(draw, design, data), smoothed)

    fbp = ss.get_model("fbp")
    theta = {
        "beta": np.zeros((1, x.shape[1])) + 3.0,
        "selection": np.full((1, 1 + x.shape[1]), 0.5),
        "variance": np.array([[0.3, 0.2]]),
    }
    y, log_pi = z[:, 0], np.log(40_000 / n) - z[:, 1]
    mean, selected, v_y, v_pi = x @ theta["beta"][0], x @ np.full(x.shape[1], 0.5), 0.3, 0.2
    written = (
        stats.norm(0.5 * y + selected, v_pi**0.5).logpdf(log_pi)
        + stats.norm(mean, v_y**0.5).logpdf(y)
        - (selected + 0.5 * mean + (v_pi + 0.25 * v_y) / 2)
    )
    for rows, block in fbp.log_lik_blocks(theta, fbp.records(design, confidential)):
        assert np.allclose(block[0], written[rows])  # 3.3

    domains = ss.build_domains(design.frame, design.by, design.levels)
    sample = ss.SampleDesign.from_public(design)
    y, w = data.outcomes(design)[:, 0], smoothed * 40_000 / smoothed.sum()
    row = domains.table.index[(domains.table["field"] == "a") & (domains.table["group"] == "f")][0]
    inside = ((frame["field"] == "a") & (frame["group"] == "f")).to_numpy()
    size = w[inside].sum()
    mean = (w * y)[inside].sum() / size
    linearised = {"count": w * (inside - size / 40_000), "mean": w * inside * (y - mean) / size}
    for statistic, u in linearised.items():
        made = ss.estimate_domains(
            domains,
            sample,
            weight=w,
            outcome=y,
            statistic=statistic,
            linearisation="ratio",
            population_size=40_000,
        )
        parts = [u[(frame["field"] == h).to_numpy()] for h in "ab"]
        variance = sum(
            len(part) / (len(part) - 1) * ((part - part.mean()) ** 2).sum() for part in parts
        )
        assert np.isclose(made.variance[row], variance)  # 5.2

    total, size = np.array([30.0, 48.0, 22.0]), np.array([3.0, 4.0, 2.0])
    r = total.sum() / size.sum()
    q, u = r + (total - r * size) / size.mean(), np.array([2.0, 3.0, 2.5])
    assert np.isclose(q.mean(), r)  # 5.6
    table = ss.combine(q[:, None, None], u[:, None, None], 30)
    b = q.var(ddof=1)
    assert np.isclose(table.standard_error[0] ** 2, u.mean() + b / 3)  # 5.6
    assert np.isclose(table.df[0], min(2 * (1 + u.mean() / (b / 3)) ** 2, 30))

    share, error = 0.2, 0.05
    one = ss.combine(np.full((1, 1, 1), share), np.full((1, 1, 1), error**2), 10)
    lower, upper = ss.logit_interval(one, 0.9)
    half = 1.812461 * error / (share * (1 - share))  # qt(0.95, 10)
    ends = [1 / (1 + np.exp(-(np.log(share / (1 - share)) + side * half))) for side in (-1, 1)]
    assert np.allclose([lower[0], upper[0]], ends, atol=1e-6)

    w, y = np.array([10.0, 5.0, 4.0, 2.0]), np.array([2.0, 4.0, 5.0, 10.0])  # w y is 20 throughout
    moved = (80 - 20 + 20) / (w.sum() - w[:, None] + w) - 80 / w.sum()
    rest = w.sum() - np.ptp(w)
    assert np.ptp(w * y) / rest == 0 < np.abs(moved).max() < w.max() * np.ptp(y) / rest  # 6.1

    half_samples = preston_multipliers(ss.SampleDesign(np.zeros(7, dtype=int)), 50, rng)
    rest = (3 / 4) ** 0.5
    values = np.array([1 - rest, 1 - rest + rest * 7 / 3])
    assert np.allclose(np.unique(half_samples.round(12)), values)
    assert np.allclose(half_samples.sum(axis=0), 7)


def test_formulas_of_the_theorems() -> None:
    budget = Budget.of_epsilon(3.6, 1e-6)
    assert round(budget.rho, 3) == 0.257
    clipping = Clipping(centre=np.zeros(2), spread=np.ones(2))
    variances = noise_variances(clipping, budget.rho)
    assert rho_spent(variances, clipping) <= budget.rho  # as an exact fraction
    sigma, radius = variances.cross_sd(clipping), clipping.radius
    assert np.isclose(sigma**2, (2 * radius) ** 2 / (2 * budget.rho))

    rng = np.random.default_rng(1)
    angle = rng.uniform(0, 2 * np.pi, size=(2, 100_000))  # pairs of far records
    u, v = radius * np.moveaxis(np.array([np.cos(angle), np.sin(angle)]), 0, -1)
    change = np.einsum("ij,ik->ijk", v, v) - np.einsum("ij,ik->ijk", u, u)
    sd = variances.squares_sd(clipping)
    rho = ((u - v) ** 2).sum(axis=1) / (2 * sigma**2)
    rho += sum(change[:, j, k] ** 2 / (2 * sd[j, k] ** 2) for j, k in ((0, 0), (0, 1), (1, 1)))
    assert 0.999 < rho.max() / budget.rho < 1 + 1e-12  # 1.4 (iii)

    cells = np.array([[1.0, a, b] for a in (0, 1) for b in (0, 1)])
    rows = NoiseDesign.optimal(cells, clipping).exact_rows
    assert 0.999 < (rows**2).sum(axis=1).max() <= 1.0  # 1.6
