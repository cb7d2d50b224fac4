"""Weighted sufficient statistics against weighted sums over records, and the identities of methods
4: weight 2 is a record twice, weight 0 none, and neither order nor the split into cells matters.
"""

from dataclasses import fields

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.models import get_model
from surveysynth.models.gaussian.model import GaussianRecords, GaussianStats, compress
from surveysynth.models.weighted import stacked
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign
from tests.models.model_designs import (
    continuous_design,
    group_design,
    make_design,
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


@each_design
def test_weights_of_one_are_the_unweighted_statistics(design: PublicDesign) -> None:
    x = rows_of(design)
    stats = compress(records_of(design, Z), np.ones(N))
    fit, *_ = np.linalg.lstsq(x, Z, rcond=None)
    np.testing.assert_allclose(stats.fit[0], fit, rtol=1e-9, atol=1e-11)
    residual = Z - x @ fit
    np.testing.assert_allclose(stats.residual[0], residual.T @ residual, rtol=1e-9)
    assert stats.total == N


@each_design
def test_weight_two_is_a_record_twice_and_weight_zero_none(design: PublicDesign) -> None:
    matrix = design.matrix
    copies = np.random.default_rng(42).integers(0, 4, N)
    repeated = GaussianRecords(
        matrix.x_cells, np.repeat(matrix.cell, copies), np.repeat(Z, copies, axis=0)
    )
    weighted = compress(GaussianRecords(matrix.x_cells, matrix.cell, Z), copies.astype(float))
    assert_same(weighted, compress(repeated, np.ones(copies.sum())))


@each_design
def test_order_of_records_does_not_matter(design: PublicDesign) -> None:
    matrix = design.matrix
    order = np.random.default_rng(43).permutation(N)
    moved = GaussianRecords(matrix.x_cells, matrix.cell[order], Z[order])
    assert_same(
        compress(GaussianRecords(matrix.x_cells, matrix.cell, Z), ALPHA),
        compress(moved, ALPHA[order]),
    )


@each_design
def test_split_of_cells_does_not_matter(design: PublicDesign) -> None:
    """Distinct rows listed record by record, or shuffled: the same X, the same statistics."""
    x = rows_of(design)
    whole = compress(records_of(design, Z), ALPHA)
    alone = make_design(x, np.arange(N))
    assert_same(whole, compress(records_of(alone, Z), ALPHA))
    shuffled = np.random.default_rng(44).permutation(N)
    elsewhere = make_design(x[shuffled], np.argsort(shuffled))
    np.testing.assert_array_equal(rows_of(elsewhere), x)
    assert_same(whole, compress(records_of(elsewhere, Z), ALPHA))


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


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_databases_of_a_batch_are_fitted_apart(name: str) -> None:
    """Posterior means of a batch are those of its databases on their own."""
    design, model = DESIGNS["groups"], get_model(name)
    stats = [compress(records_of(design, Z[:, :2] / 4.0 + j), ALPHA) for j in range(3)]
    batch = stacked(stats)
    plan = SamplingPlan(chains=4, warmup=150, draws=300)
    together = model.sample(batch, plan, np.random.default_rng(46))
    assert together["beta"].shape[:3] == (3, 4, 300)
    for j, one in enumerate(stats):
        alone = model.sample(one, plan, np.random.default_rng(47 + j))
        for key, values in model.monitored(alone).items():
            both = model.monitored({k: v[j : j + 1] for k, v in together.items()})[key]
            gap = both.mean((0, 1, 2)) - values.mean((0, 1, 2))
            assert np.all(np.abs(gap) < 0.3 * values.std((0, 1, 2))), key
