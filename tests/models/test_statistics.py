"""Weighted sufficient statistics against weighted sums over records, which know neither cells nor
an order; cells without records, values far from zero; a record twice, draw by draw."""

from dataclasses import fields

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.models import get_model
from surveysynth.models.gaussian.model import GaussianRecords, GaussianStats, compress
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign
from tests.models.model_designs import (
    continuous_design,
    group_design,
    records_of,
    rows_of,
)

N, Q = 120, 3
RNG = np.random.default_rng(40)
ALPHA = np.clip(RNG.uniform(-0.2, 1.2, N), 0.0, 1.0)
Z = RNG.normal(size=(N, Q)) @ RNG.normal(size=(Q, Q)) + np.array([11.0, -3.0, 5.0])
DESIGNS = {"groups": group_design(N), "continuous": continuous_design(N)}
each_design = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())


def assert_same(a: GaussianStats, b: GaussianStats, rtol: float = 1e-10) -> None:
    for part in fields(a):
        left, right = getattr(a, part.name), getattr(b, part.name)
        np.testing.assert_allclose(left, right, rtol=rtol, atol=1e-11, err_msg=part.name)


def random_coefficients(k: int) -> FloatArray:
    return np.random.default_rng(41).normal(size=(1, k, Q))


@each_design
def test_statistics_are_weighted_sums_over_records(design: PublicDesign) -> None:
    x = rows_of(design)
    stats = compress(records_of(design, Z), ALPHA)
    weighted = x * ALPHA[:, None]
    np.testing.assert_allclose(stats.total, [ALPHA.sum()])
    np.testing.assert_allclose(stats.x_sum[0], weighted.sum(0), atol=1e-12)
    np.testing.assert_allclose(stats.gram[0], weighted.T @ x, atol=1e-11)
    np.testing.assert_allclose((stats.gram @ stats.fit)[0], weighted.T @ Z, rtol=1e-9, atol=1e-9)
    beta = random_coefficients(x.shape[1])
    residual = Z - x @ beta[0]
    squares = (residual * ALPHA[:, None]).T @ residual
    np.testing.assert_allclose(stats.sum_of_squares(beta)[0], squares, rtol=1e-10)


def test_a_cell_without_weight_or_records_changes_nothing() -> None:
    design = DESIGNS["groups"]
    cells = np.concatenate([design.matrix.x_cells, [[1.0, 5.0, 7.0]]])
    more = GaussianRecords(cells, design.matrix.cell, Z)
    assert_same(compress(records_of(design, Z), ALPHA), compress(more, ALPHA))
    inside = design.matrix.cell != 2
    stats = compress(records_of(design, Z), inside * ALPHA)
    rest = GaussianRecords(design.matrix.x_cells, design.matrix.cell[inside], Z[inside])
    assert_same(stats, compress(rest, ALPHA[inside]))
    arrays = (getattr(stats, part.name) for part in fields(stats))
    assert all(np.all(np.isfinite(array)) for array in arrays)


def test_residuals_do_not_cancel_on_a_far_level() -> None:
    """Values 1e8 SDs from zero: the sum of squares keeps the digits that Z'AZ would lose."""
    design = DESIGNS["groups"]
    near = compress(records_of(design, Z), ALPHA).residual
    far = compress(records_of(design, Z + 1e8), ALPHA).residual
    np.testing.assert_allclose(far, near, rtol=1e-6)


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_weights_of_one_are_the_unweighted_fit(name: str) -> None:
    """Draw by draw: a weighted fit at alpha = 1 is the plain one, and copies are weights."""
    design, model = DESIGNS["groups"], get_model(name)
    z = Z[:, :2] / 4.0
    plan = SamplingPlan(chains=2, warmup=20, draws=20)

    def draws(records: GaussianRecords, alpha: FloatArray) -> dict[str, FloatArray]:
        return model.sample(model.compress(records, alpha), plan, np.random.default_rng(45))

    once = draws(records_of(design, z), np.full(N, 2.0))
    twice = GaussianRecords(
        design.matrix.x_cells, np.tile(design.matrix.cell, 2), np.tile(z, (2, 1))
    )
    copies = draws(twice, np.ones(2 * N))
    for key, values in once.items():
        np.testing.assert_allclose(values, copies[key], rtol=1e-6, atol=1e-8, err_msg=key)
