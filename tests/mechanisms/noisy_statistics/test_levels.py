"""A prior without a favorite level. Truth: the covariance of cell means with levels named another
way; the same noisy numbers read by a design with another reference level."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.base import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior import draws
from surveysynth.mechanisms.noisy_statistics.posterior.draws import alike
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    release_statistics,
    table_of,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.general_location.layout import Layout
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.design_matrix import DesignMatrix, build_design_matrix
from surveysynth.survey.survey import Confidential, PublicDesign
from tests.models.general_location.general_cases import INCOME, general_design, model_for

WEIGHT = Declared(0.0, 1.0)  # there is none
REGIONS, SEXES = ("a", "b", "c", "d"), ("f", "m")


def frame_of(regions: tuple[str, ...], sexes: tuple[str, ...] = SEXES) -> pd.DataFrame:
    """Cells in one order, whatever the levels are called."""
    pairs = [(r, s) for r in regions for s in sexes] * 4
    frame = pd.DataFrame(pairs, columns=["region", "sex"])
    return frame.assign(size=np.arange(len(pairs)) // 5 % 4)


def matrix_of(frame: pd.DataFrame, formula: str) -> DesignMatrix:
    return build_design_matrix(frame, formula, by=["region", "sex"], strata=None)


def covariance(matrix: DesignMatrix, root: FloatArray) -> FloatArray:
    """Of the means of all records."""
    rows = (matrix.x_cells @ root)[matrix.cell]
    return rows @ rows.T


@pytest.mark.parametrize("formula", ["region + sex", "region + sex + size", "sex*region"])
def test_names_of_levels_do_not_matter(formula: str) -> None:
    frames = frame_of(REGIONS), frame_of(("z", "b", "a", "c"), ("y", "x"))
    both = [matrix_of(frame, formula) for frame in frames]
    ours = [covariance(matrix, alike(matrix) * ~matrix.ridged) for matrix in both]
    np.testing.assert_allclose(ours[0], ours[1], atol=1e-12)
    plain = [covariance(matrix, np.diag(1.0 - matrix.ridged)) for matrix in both]
    assert np.abs(plain[0] - plain[1]).max() > 0.5


def test_effects_of_all_levels_are_independent() -> None:
    """One more for each variable two records share, about an intercept that all do."""
    frame = frame_of(REGIONS)
    found = covariance(matrix := matrix_of(frame, "region + sex"), alike(matrix))
    region, sex = frame["region"].to_numpy(), frame["sex"].to_numpy()
    truth = 1.0 + (region[:, None] == region) + (sex[:, None] == sex)
    np.testing.assert_allclose(found, truth, atol=1e-12)


@pytest.mark.parametrize(
    ("formula", "coded"),
    [("0 + region + sex", 0), ("C(region, contr.sum) + sex", 1),
     ("region + sex + size + region:size", 2), ("C(region, contr.treatment('c')) + sex", 2),
     ("size + region + sex + sex:region", 2)],
)  # fmt: skip
def test_columns_of_other_codings_are_left_alone(formula: str, coded: int) -> None:
    """coded: variables that are coded by differences from a level, and no other column moves."""
    matrix = matrix_of(frame_of(REGIONS), formula)
    variance = alike(matrix) @ alike(matrix).T
    levels = np.array(["[T." in name and not name.endswith(":size") for name in matrix.columns])
    levels &= ~matrix.ridged
    if not coded:
        np.testing.assert_array_equal(variance, np.eye(matrix.n_columns))
        return
    first = matrix.columns.index("Intercept")
    assert variance[first, first] == pytest.approx(1.0 + coded)
    others = ~levels & (np.arange(matrix.n_columns) != first)
    np.testing.assert_allclose(variance[others], np.eye(matrix.n_columns)[others], atol=1e-12)
    np.testing.assert_allclose(variance[levels, first], -1.0)


def design_of(order: list[int]) -> PublicDesign:
    """400 records, of a rare region among four; ``order`` has the reference level first."""
    plain = general_design(400, (INCOME,), regions=4, weighted=False)
    region = np.repeat(np.arange(4), 2)
    x = np.column_stack([np.ones(8), *(region == k for k in order[1:]), np.arange(8) % 2])
    columns = ("Intercept", *(f"region[T.{k}]" for k in order[1:]), "sex[T.1]")
    matrix = replace(plain.matrix, columns=columns, x_cells=x.astype(np.float64))
    return replace(plain, matrix=matrix, population_size=20_000)


def read_by(
    statistics: LocationStatistics, design: PublicDesign, other: PublicDesign
) -> LocationStatistics:
    """The same noisy numbers, of sums by the columns of another design."""
    turn = np.linalg.lstsq(other.matrix.x_cells, design.matrix.x_cells, rcond=None)[0]
    return replace(statistics, basis=tuple(turn @ each for each in statistics.basis))


def test_a_rare_reference_level_is_no_nearer_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One release read by two designs that differ in the reference level alone."""
    designs = design_of([3, 0, 1, 2]), design_of([0, 1, 2, 3])
    rng, region = np.random.default_rng(3), designs[0].matrix.cell // 2
    assert np.bincount(region)[3] < 40
    income = 1.5 * (region == 3) + 0.2 * rng.standard_normal(4)[region]
    survey = Confidential((income + 0.7 * rng.standard_normal(400))[:, None], None)
    settings = NoisySettings(
        Budget.of_rho(0.1, 1e-6), {"income": Declared(0.0, 0.7)}, WEIGHT, m=720,
        plan=SamplingPlan(24, 60, 60),
    )  # fmt: skip
    model = model_for(())
    statistics = release_statistics(model, designs[0], survey, settings, SeededNoise(rng))
    assert isinstance(statistics, LocationStatistics)
    both = [statistics, read_by(statistics, *designs)]

    def gap() -> float:
        means, sds = [], []
        for design, own in zip(designs, both, strict=True):
            result, _ = draws.posterior_draws(
                model, design, own, settings, np.random.default_rng(5)
            )
            fitted = result.theta["coefficients_1"] @ design.matrix.x_cells.T
            means.append(fitted.mean(0))
            sds.append(fitted.std(0))
        return float(np.abs((means[0] - means[1]) / sds[0]).max())

    assert gap() < 0.2
    monkeypatch.setattr(draws, "alike", lambda matrix: np.eye(matrix.n_columns))
    assert gap() > 0.4


def test_coefficients_return_to_the_columns_of_the_formula() -> None:
    """Means of z by e on X root, plus the centre, are those of coefficients on X."""
    design = design_of([3, 0, 1, 2])
    model, root = model_for(()), alike(design.matrix)
    statistics = release_statistics(
        model, design, Confidential(np.zeros((400, 1)), None),
        NoisySettings(Budget.of_rho(1.0, 1e-6), {"income": Declared(2.0, 0.7)}, WEIGHT),
        SeededNoise(np.random.default_rng(1)),
    )  # fmt: skip
    assert isinstance(statistics, LocationStatistics)
    shape, layout = table_of(model, design), Layout.of(design, grouped=False)
    table = NoisyTable.of(shape, design.matrix.cell, statistics, root)
    posterior = Parameters(layout, table, model.priors)
    points = np.random.default_rng(2).standard_normal((6, posterior.dimension))
    found = draws.theta_of(posterior, points, root)["coefficients_1"] @ design.matrix.x_cells.T
    means = posterior.means(posterior.point(points))[:, :, 0, 0]
    np.testing.assert_allclose(found, statistics.centre + statistics.spread * means, atol=1e-12)
