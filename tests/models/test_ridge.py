"""The ridge on interactions: statistics with the records that it stands for."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth.models import get_model
from surveysynth.models.gaussian.model import GaussianRecords, compress

SCALE, K, RIDGED = 0.4, 5, 2


@pytest.fixture(scope="module")
def data():
    """X (12 cells, K), the cell, z (n, 2) and risk weights of 150 records."""
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(12), rng.normal(size=(12, K - 1))])
    cell = rng.integers(0, 12, 150)
    z = (x @ rng.normal(size=(K, 2)))[cell] + rng.normal(size=(150, 2)) @ [[1.0, 0.4], [0.0, 0.7]]
    return x, cell, z, rng.random(150)


def with_pseudo_records(data, scale):
    """Statistics of the records and of one more a ridged column, z = 0 and x_k = 1 / scale."""
    x, cell, z, alpha = data
    more = np.eye(K)[K - RIDGED :] / scale
    return compress(
        GaussianRecords(
            np.vstack([x, more]), np.append(cell, 12 + np.arange(RIDGED)),
            np.vstack([z, np.zeros((RIDGED, 2))]),
        ),
        np.append(alpha, np.ones(RIDGED)),
    )  # fmt: skip


def test_the_ridge_is_one_record_a_column(data) -> None:
    x, cell, z, alpha = data
    plain = compress(GaussianRecords(x, cell, z, shrunken=RIDGED), alpha)
    made, expected = plain.with_ridge(SCALE), with_pseudo_records(data, SCALE)
    for name in ("gram", "fit", "residual"):
        np.testing.assert_allclose(getattr(made, name), getattr(expected, name), atol=1e-10)
    np.testing.assert_allclose(made.count, expected.total)
    np.testing.assert_allclose(made.total, alpha.sum())
    np.testing.assert_allclose(made.x_sum, plain.x_sum)
    assert plain.with_ridge(None).shrunken == plain.with_ridge(None).ridges == 0


def test_the_shrinkage_is_in_units_of_the_residuals(data) -> None:
    """Outcomes in other units have the same shrinkage: Z c has coefficients B c."""
    x, cell, z, alpha = data
    of_units = [
        compress(GaussianRecords(x, cell, z * unit, shrunken=RIDGED), alpha).with_ridge(SCALE).fit
        for unit in (1.0, 1000.0)
    ]
    np.testing.assert_allclose(of_units[1], 1000.0 * of_units[0], rtol=1e-9)


def test_leverage_of_the_design_is_that_of_the_prior() -> None:
    """Prior and rule read one constant."""
    model = get_model("fbs")
    assert model.priors["interaction_scale"] == 0.3
    stats = replace(
        compress(GaussianRecords(np.eye(2), np.array([0, 1, 1]), np.zeros((3, 1))), np.ones(3)),
        shrunken=1,
    ).with_ridge(model.priors["interaction_scale"])
    np.testing.assert_allclose(stats.gram[0], np.diag([1.0, 2.0 + 0.3**-2]))
