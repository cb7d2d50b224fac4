"""What groups that share a level have in common. Truth: effects written out for every level."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.general_location.layout import CovarianceGroups
from tests.mechanisms.noisy_statistics.law_cases import AGE, released


def covariance_of_effects(level: FloatArray) -> FloatArray:
    """That of effects of all groups, of SD one before their mean is taken off."""
    result = np.zeros((level.shape[1], level.shape[1]))
    for own in level:
        result += (own[:, None] == own) - 1.0 / np.unique(own).size
    return result


def test_groups_have_effects_of_their_levels_that_add_up_to_zero() -> None:
    table = released((AGE,), np.random.default_rng(1))
    level = table.shape.levels
    assert level.shape == (1, 3)
    found = table.contrasts.T @ table.contrasts
    np.testing.assert_allclose(found, covariance_of_effects(level), atol=1e-12)


def test_columns_with_as_many_levels_as_groups_have_no_effects() -> None:
    labels = (("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "x"))
    groups = CovarianceGroups(("region", "sex"), np.arange(5), labels)
    np.testing.assert_array_equal(groups.levels, [[0, 0, 1, 1, 2], [0, 1, 0, 1, 0]])
    alone = CovarianceGroups(("region",), np.arange(3), (("a",), ("b",), ("c",)))
    assert alone.levels.shape == (0, 3)
    nested = CovarianceGroups(
        ("stratum", "region"), np.arange(3), (("1", "a"), ("2", "a"), ("3", "b"))
    )
    np.testing.assert_array_equal(nested.levels, [[0, 0, 1]])
    constant = CovarianceGroups(("year", "sex"), np.arange(2), (("1", "x"), ("1", "y")))
    assert constant.levels.shape == (0, 2)
