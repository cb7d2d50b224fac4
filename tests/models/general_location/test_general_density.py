"""The general location model's density: SciPy's densities record by record with every constant,
gradients by finite differences, and the way to the parameters and back."""

import re
from collections.abc import Mapping

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.layout import of_parts
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from surveysynth.survey.survey import Confidential, PublicDesign
from tests import oracles
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    BY,
    GAIN,
    INCOME,
    SICK,
    TAX,
    WORK,
    confidential_of,
    direct_log_lik,
    draw,
    general_design,
    layout_of,
    model_for,
    random_theta,
)
from tests.oracles import general_location
from tests.oracles.unconstrained import (
    CorrelationRoot,
    lkj_log_density,
    unconstrained_correlation,
)

CASES = {
    "all kinds": (ALL, (), True),
    "all kinds by group": (ALL, BY, True),
    "two amounts by group": ((INCOME, BENEFIT), ("region",), True),
    "amounts on two sides": ((TAX, SICK, INCOME, GAIN), ("region",), True),
    "one amount on two sides": ((GAIN,), (), False),
    "no weight": ((BENEFIT, SICK, INCOME), (), False),
    "categories alone": ((WORK, SICK), (), False),
    "interactions": ((INCOME,), (), True),
    "interactions by group": ((INCOME, BENEFIT, SICK), BY, True),
    "pseudo-records": ((BENEFIT, WORK, INCOME, GAIN), (), True),
    "interactions, pseudo-records by group": ((INCOME, BENEFIT, SICK), ("region",), True),
    "all kinds in clusters": (ALL, (), True),
    "two sides in clusters": ((TAX, SICK, INCOME, GAIN), (), True),
    "categories alone in clusters": ((WORK, SICK), (), False),
    "interactions in clusters": ((INCOME, BENEFIT, SICK), (), True),
    "pseudo-records in clusters": ((INCOME, BENEFIT), (), True),
}
#: PSUs of a design in clusters.
PSUS = 6
each_case = pytest.mark.parametrize("name", CASES)
Made = tuple[GeneralLocation, PublicDesign, Confidential, FloatArray, GeneralStats]


def made(name: str, n: int = 60) -> Made:
    outcomes, by, weighted = CASES[name]
    design = general_design(
        n, outcomes, weighted=weighted, ridged="interactions" in name,
        pseudo=7.0 if "pseudo" in name else 0.0,
        psus=PSUS * ("clusters" in name),
    )  # fmt: skip
    model = model_for(
        by, logit_sd=1.5, coefficient_scale=2.0, residual_scale=0.7, interaction_scale=0.4
    )
    theta = draw(random_theta(model, design, 1), 0)
    simulated = model.simulate(theta, design, np.random.default_rng(4))
    survey = confidential_of(design, simulated)
    alpha = np.random.default_rng(5).random(n) * (np.arange(n) % 7 > 0)
    return model, design, survey, alpha, model.compress(model.records(design, survey), alpha)


def points(model: GeneralLocation, statistics: GeneralStats, count: int) -> FloatArray:
    """u (count, d), of the size that a posterior has."""
    layout, groups = statistics.shape
    size = sum(part.columns.size * part.own.size for part in layout.logits)
    for part in layout.regressions:
        slopes = part.earlier.size if layout.grouped else 0
        size += part.width + 1 + groups + 2 * layout.grouped + groups * slopes + (slopes > 0)
    if statistics.psus:
        d = layout.amount_effects.stop
        size += d + d * (d - 1) // 2 + d * statistics.psus[0].count
    return 0.5 * np.random.default_rng(6).standard_normal((count, size))


def log_prior(model: GeneralLocation, theta: Theta, design: PublicDesign) -> float:
    """With the Jacobians of logarithms; residual SDs are those of the variances.

    Coefficients of an interaction in all regressions are normal, with interaction_scale^2 times
    the covariance that z has at the common residual scales and core slopes; in a logit with twice
    the constant."""
    priors, total = model.priors, 0.0
    ridged = np.flatnonzero(design.matrix.ridged)
    layout = layout_of(model, design)
    if ridged.size and layout.regressions:
        names = [part.name for part in layout.regressions]
        slopes = np.zeros((len(names), len(names)))
        for j, regression in enumerate(layout.regressions):
            core = theta[f"coefficients_{regression.name}"]
            slopes[j, regression.earlier] = core[regression.columns.size :]
        scales = [
            theta.get(f"pooled_scale_{name}", np.sqrt(theta[f"variance_{name}"][0]))
            for name in names
        ]
        root = np.linalg.inv(np.eye(len(names)) - slopes) * np.array(scales)
        covariance = priors["interaction_scale"] ** 2 * root @ root.T
        interactions = np.stack([theta[f"coefficients_{name}"][ridged] for name in names], axis=1)
        total += stats.multivariate_normal(cov=covariance).logpdf(interactions).sum()

    def half_t(value: float, df: float, scale: float) -> float:
        return float(stats.t.logpdf(value, df, scale=scale) + np.log(2.0) + np.log(value))

    theta = dict(theta)
    effects, covariance = theta.pop(PSU_EFFECT, None), theta.pop(PSU_COVARIANCE, None)
    total += log_prior_of_effects(covariance, effects, priors)
    for name, value in theta.items():
        kind, part = re.fullmatch(r"(.+?)_(\d+(?:_below)?|weight)", name).groups()  # type: ignore[union-attr]
        if kind == "logit":
            sd = np.full((len(value), 1), priors["logit_sd"])
            sd[ridged] = 2.0 * priors["interaction_scale"]
            total += stats.norm.logpdf(value, 0.0, sd).sum()
        elif kind == "coefficients":
            free = np.delete(value, ridged)
            total += stats.norm.logpdf(free, 0.0, theta[f"coefficient_scale_{part}"]).sum()
        elif kind == "slopes":
            total += stats.norm.logpdf(value, 0.0, theta[f"slope_scale_{part}"]).sum()
        elif kind == "coefficient_scale":
            total += half_t(float(value), 3.0, priors["coefficient_scale"])
        elif kind == "slope_scale":
            total += half_t(float(value), 3.0, priors["slope_scale"])
        elif kind == "pooled_scale":
            total += half_t(float(value), 3.0, priors["residual_scale"])
        elif kind == "pooled_df":
            total += half_t(float(value), 1.0, priors["pooling_df"])
        elif f"pooled_df_{part}" in theta:  # variances of groups, by their logarithms' halves
            nu, scale = theta[f"pooled_df_{part}"], theta[f"pooled_scale_{part}"]
            of_variance = stats.invgamma.logpdf(value, nu / 2, scale=nu * scale**2 / 2)
            total += (of_variance + np.log(2.0 * value)).sum()
        else:
            total += half_t(float(np.sqrt(value[0])), 3.0, priors["residual_scale"])
    return total if design.pseudo is None else total + of_pseudo_records(model, theta, design)


def of_pseudo_records(model: GeneralLocation, theta: Theta, design: PublicDesign) -> float:
    """Log density, record by record: effects of categories, amounts as declared, and slopes."""
    pseudo, layout, total = design.pseudo, layout_of(model, design), 0.0
    assert pseudo is not None
    records, x, cell = pseudo.records, design.matrix.x_cells, design.matrix.cell
    for part in layout.regressions:
        core = theta[f"coefficients_{part.name}"]
        s = float(
            theta.get(f"pooled_scale_{part.name}", np.sqrt(theta[f"variance_{part.name}"][0]))
        )
        for place, column in enumerate(part.columns):
            if column >= layout.columns:  # as the mean of so many records would say, of one
                total += stats.norm.logpdf(0.0, np.sqrt(records) * core[place], s)
        for k, earlier in enumerate(part.earlier):
            spread = pseudo.typical[earlier][1]
            told = np.sqrt(records) * spread * core[part.columns.size + k]
            total += stats.norm.logpdf(0.0, told, s)
        if part.outcome is None:
            continue
        centre, spread = pseudo.typical[part.position]
        off = centre - x[cell] @ core[: layout.columns]
        if not design.outcomes[part.outcome].is_discrete:
            off = np.zeros(1)
        # Records at the centre plus and minus a spread have this mean log density.
        each = stats.norm.logpdf(0.0, 0.0, s) - 0.5 * (off**2 + spread**2) / s**2
        total += records * each.mean()
    if model.grouped:  # of log(nu - R), where the above has log nu
        for name, nu in theta.items():
            if name.startswith("pooled_df"):
                total += np.log1p(-records / nu)
    return total


def log_prior_of_effects(
    covariance: FloatArray | None, effects: FloatArray | None, priors: Mapping[str, float]
) -> float:
    """Half-t scales, an LKJ correlation and normal effects, on Stan's unconstrained scale."""
    if covariance is None or effects is None:
        return 0.0
    scale = np.sqrt(np.diag(covariance))
    root = np.linalg.cholesky(covariance / np.outer(scale, scale))
    total = stats.multivariate_normal(cov=covariance).logpdf(effects).sum()
    total += (stats.t.logpdf(scale, 3.0, scale=priors["psu_scale"]) + np.log(2.0 * scale)).sum()
    correlation = CorrelationRoot.from_unconstrained(unconstrained_correlation(root), len(scale))
    log_lkj, _ = lkj_log_density(correlation, priors["lkj"])
    return float(total + log_lkj + correlation.log_jacobian)


@each_case
def test_density_is_the_weighted_sum_over_records_and_the_prior(name: str) -> None:
    model, design, survey, alpha, statistics = made(name)
    u = points(model, statistics, 3)
    value, _ = oracles.log_density(model, u, statistics)
    for s in range(3):
        theta = oracles.constrain(model, u[s], statistics.shape)
        expected = alpha @ direct_log_lik(model, theta, design, survey)
        expected += log_prior(model, theta, design)
        np.testing.assert_allclose(value[s], expected, rtol=1e-9)


@each_case
def test_gradient_is_that_of_finite_differences(name: str) -> None:
    model, _, _, _, statistics = made(name)
    (u,) = points(model, statistics, 1)
    step = 1e-6 * np.eye(u.size)
    after, before = (oracles.log_density(model, u + sign * step, statistics)[0] for sign in (1, -1))
    gradient = oracles.log_density(model, u, statistics)[1]
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(gradient / scale, (after - before) / 2e-6 / scale, atol=2e-7)


@each_case
def test_unconstrain_is_the_way_back(name: str) -> None:
    model, _, _, _, statistics = made(name)
    u = points(model, statistics, 4)
    theta = oracles.constrain(model, u, statistics.shape)
    least = 0.0 if statistics.layout.pseudo is None else statistics.layout.pseudo.records
    np.testing.assert_allclose(general_location.unconstrain(theta, least), u)


def test_what_stan_draws_comes_back_under_the_samplers_names() -> None:
    """Sides of a split by the sign of their outcome: arrays end to end, taken apart again."""
    model, _, _, _, statistics = made("amounts on two sides")
    data = model.stan.data(statistics, model.priors)
    assert data["regression_outcome"] == [1, -1, 3, 4, -4, 0]
    theta = oracles.constrain(model, points(model, statistics, 5), statistics.shape)
    widths = [part.width for part in statistics.layout.regressions]
    slopes = [part.earlier.size for part in statistics.layout.regressions]
    assert [sum(row) for row in data["before"]] == slopes
    assert np.add(slopes, [sum(row) for row in data["uses"]]).tolist() == widths

    def joined(prefix: str, axes: int) -> FloatArray:
        arrays = [each.reshape(5, -1) for each in of_parts(theta, prefix)]
        return np.concatenate(arrays, axis=1) if axes else np.stack(arrays, axis=-1)[:, 0]

    def table(outcomes: list[int], *sizes: list[int]) -> FloatArray:
        return np.tile(np.array([outcomes, *sizes]).T, (5, 1, 1))

    draws = {
        "logit_parts": table(data["logit_outcome"], data["P"], data["Q"]),
        "regression_parts": table(data["regression_outcome"], widths, slopes),
        "logit_b": joined("logit_", 1), "core": joined("coefficients_", 1),
        "slopes": joined("slopes_", 1), "tau": joined("coefficient_scale_", 0),
        "s_0": joined("pooled_scale_", 0), "nu": joined("pooled_df_", 0),
        "t": joined("slope_scale_", 0),
        "sd": np.sqrt(np.stack(of_parts(theta, "variance_"), axis=-1)),
    }  # fmt: skip
    back = model.stan.theta(draws)
    assert back.keys() == theta.keys()
    for name, values in theta.items():
        np.testing.assert_allclose(back[name], values, rtol=1e-12)
