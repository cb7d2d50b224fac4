"""The law of coefficients by cell, against the same law by one dense precision of all of them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.draws import table_of
from surveysynth.mechanisms.noisy_statistics.posterior.location import cell_reference
from surveysynth.mechanisms.noisy_statistics.posterior.location.cell_reference import (
    CellReference,
    mean_reference,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.levels import alike
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import MeanReference
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import release_statistics
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.general_location.layout import Layout
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import Streams
from surveysynth.survey.design_matrix import build_design_matrix
from surveysynth.survey.survey import PublicDesign
from tests.models.general_location.general_cases import (
    BENEFIT,
    INCOME,
    PLAIN,
    SICK,
    TAX,
    WORK,
    confidential_of,
    draw,
    general_design,
    model_for,
    random_theta,
)

CHAINS = 6
WEALTH = replace(INCOME, name="wealth", transform=PLAIN)


def crossed(sizes: tuple[int, int], outcomes: tuple, weighted: bool, gaps: bool) -> PublicDesign:
    """Two factors of these numbers of levels with all their cells, or without a third of them."""
    rng, (regions, fields) = np.random.default_rng(3), sizes
    pairs = np.array([(r, f) for r in range(regions) for f in range(fields)])
    if gaps:
        pairs = pairs[(pairs[:, 0] + 2 * pairs[:, 1]) % 3 > 0]
    cell = np.concatenate([np.arange(len(pairs)), rng.integers(0, len(pairs), 40 * len(pairs))])
    frame = pd.DataFrame(pairs[cell].astype(str), columns=["region", "sex"])
    plain = general_design(len(cell), outcomes, weighted=weighted)
    matrix = build_design_matrix(frame, None, by=("region", "sex"), strata=None)
    levels = {name: tuple(sorted(set(frame[name]))) for name in frame}
    return replace(plain, matrix=matrix, frame=frame, levels=levels, population_size=20 * len(cell))


def moved(design: PublicDesign, rounds: int = 3, rho: float = 2.0) -> LocationSweeps:
    """Chains that are no two at one point."""
    model = model_for(("region", "sex"))
    theta = draw(random_theta(model, design, 1), 0)
    simulated = model.simulate(theta, design, np.random.default_rng(4), "sample")
    settings = NoisySettings(
        Budget.of_rho(rho, 1e-6), {o.name: Declared(0.0, 1.5) for o in design.outcomes
                                   if o.is_amount},
        Declared(0.0, 1.5), m=8, plan=SamplingPlan(CHAINS, 10, 10),
        declared_below={o.name: Declared(-0.5, 1.0) for o in design.outcomes
                        if o.split is not None},
    )  # fmt: skip
    statistics = release_statistics(
        model, design, confidential_of(design, simulated), settings,
        SeededNoise(np.random.default_rng(5)),
    )  # fmt: skip
    shape = table_of(model, design)
    target = LocationTarget.of(shape, design.matrix.cell, [statistics], CHAINS)
    target = target.about_centre().on_columns(alike(design.matrix))
    streams = Streams((np.random.default_rng(6),), 1)
    layout = Layout.of(design, model.grouped)
    sweeps = LocationSweeps(layout, target, model.priors, streams, 1)
    for i in range(rounds):
        sweeps.sweep(i)
    return sweeps


def errors(sweeps: LocationSweeps, ours: MeanReference) -> dict[str, float]:
    """By how much they differ from those of a dense precision, in SDs."""
    moves = sweeps.moves
    assert moves is not None
    dense, rng = MeanReference(sweeps.data, moves.parameters), np.random.default_rng(7)
    laws, point, found = sweeps.data.laws, moves.point, {}
    for law in ("normal", "roughly"):  # the first of which learns what the second uses
        far = [getattr(each, law)(laws, point, *[1.0] * (law == "normal"))
               for each in (ours, dense)]  # fmt: skip
        mine, theirs = far
        normals = rng.standard_normal(theirs.mean.shape)
        values = mine.mean + mine.drawn(normals)
        room = mine.log_room - theirs.log_room
        lengths = (theirs.white(values) ** 2).sum(1), (normals**2).sum(1)
        found |= {
            f"{law}: mean": float(np.abs(theirs.white(mine.mean)).max()),
            f"{law}: back": float(np.abs(mine.white(values) - normals).max()),
            f"{law}: size": float(np.abs(lengths[0] / lengths[1] - 1.0).max()),
            # The same but for a constant, wherever a chain is.
            f"{law}: room": float(np.ptp(room)),
        }
        assert np.ptp(theirs.log_room) > 0.1
    return found


CASES = {
    "amount and weight": ((6, 5), (INCOME,), True, False),
    "amount alone": ((7, 5), (INCOME,), False, False),
    "three columns": ((5, 6), (INCOME, WEALTH), True, False),
    "cells without records": ((9, 7), (INCOME,), True, True),
    "a category": ((6, 5), (SICK, INCOME), True, False),
    "categories and spikes": ((9, 7), (WORK, BENEFIT, INCOME), True, True),
    "two sides": ((5, 6), (TAX, SICK), False, False),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_law_of_a_dense_precision(name: str) -> None:
    sweeps = moved(crossed(*CASES[name]))
    moves = sweeps.moves
    assert moves is not None
    assert isinstance(moves.means, CellReference)
    found = errors(sweeps, mean_reference(sweeps.data, moves.parameters))
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("wrong", ["apart", "along", "few", "spanned", "scaled", "single"])
def test_it_would_be_another_law_with_other_blocks(wrong: str) -> None:
    sweeps = moved(crossed(*CASES["categories and spikes"]))
    moves = sweeps.moves
    assert moves is not None
    assert isinstance(moves.means, CellReference)
    cells = moves.means.cells
    parts = getattr(cells, wrong)
    size = 1.05 if wrong == "apart" else 0.95  # which leave a root
    if wrong == "single":
        parts = [replace(each, t=size * each.t, e=size * each.e) for each in parts]
    else:
        parts = size * parts
    other = replace(cells, **{wrong: parts})
    found = errors(sweeps, CellReference(sweeps.data, moves.parameters, other))
    assert max(found.values()) > 1e-2, found


def test_effects_of_the_factor_with_most_levels_are_in_blocks() -> None:
    """What is left of main effects does not grow with its levels."""
    few = {}
    for regions in (8, 16):
        sweeps = moved(crossed((regions, 4), (INCOME,), True, False), rounds=0)
        assert sweeps.moves is not None
        means = sweeps.moves.means
        assert isinstance(means, CellReference)
        assert means.cells.apart.shape == (regions, 4, 4)
        few[regions] = means.cells.few.shape[1]
    assert few[8] == few[16] == 4


@pytest.mark.parametrize("name", ["cells without records", "categories and spikes"])
def test_rounding_leaves_a_root_at_every_scale(name: str) -> None:
    """Of interactions next to none, or unbounded, and of main effects."""
    sweeps = moved(crossed(*CASES[name]))
    moves, rng = sweeps.moves, np.random.default_rng(8)
    assert moves is not None
    for log_s in (-25.0, 0.0, 25.0):
        for log_tau in (-25.0, 0.0, 25.0):
            point = replace(
                moves.point, log_s=moves.point.log_s + log_s, log_tau=moves.point.log_tau + log_tau
            )
            near = moves.means.roughly(sweeps.data.laws, point)
            normals = rng.standard_normal(near.mean.shape)
            back = near.white(near.mean + near.drawn(normals))
            assert np.isfinite(near.log_room).all()
            assert np.abs(back - normals).max() < 1e-3


def test_where_there_are_few_interactions_one_precision_serves() -> None:
    sweeps = moved(crossed((20, 2), (INCOME,), True, False), rounds=0)
    assert sweeps.moves is not None
    assert type(sweeps.moves.means) is MeanReference


def test_other_columns_than_orthonormal_ones_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    design = crossed((6, 5), (INCOME,), True, False)
    columns: FloatArray = design.matrix.x_cells.copy()
    columns[:, design.matrix.ridged] *= 1.001
    other = replace(design, matrix=replace(design.matrix, x_cells=columns))
    for each, kind in (design, CellReference), (other, MeanReference):
        sweeps = moved(each, rounds=0)
        assert sweeps.moves is not None
        assert type(sweeps.moves.means) is kind
    monkeypatch.setattr(cell_reference, "EXACT", 0.1)
    assert isinstance(moved(other, rounds=0).moves.means, CellReference)  # type: ignore[union-attr]
