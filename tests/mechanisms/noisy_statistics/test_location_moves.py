"""Moves of coefficients and variances with what is latent held, against forward simulation: from
parameters of the prior, records of these and noisy statistics of those, one application leaves the
joint law of parameters, moments and noisy numbers. Wrong ones are told."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location import point as point_module
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.sampling.sweeps import Streams
from tests.long_runs import location_sbc
from tests.long_runs.location_sbc import CASES, Case
from tests.mechanisms.noisy_statistics import mistakes
from tests.mechanisms.noisy_statistics.forward import forward, taught, z_scores

GROUPED = CASES["Several, two groups"]
SINGLE = CASES["Semicontinuous"]
#: Where noise leaves much to the priors.
NOISY = replace(SINGLE, sigma=40.0, squares_sd=200.0, count_sd=1.0)
WIDE_NOISE = replace(GROUPED, sigma=40.0, squares_sd=200.0, count_sd=1.0)
#: Where the data tell coefficients, and how well hangs on the variances.
PRECISE = replace(GROUPED, sigma=0.5, squares_sd=60.0)
#: Interactions that are shrunken by the covariance of both columns.
RIDGED = replace(
    CASES["Continuous, three groups"], ridged=(1, 2), sigma=60.0, squares_sd=240.0,
    priors={"coefficient_scale": 1.5, "residual_scale": 0.5, "interaction_scale": 1.0},
)  # fmt: skip
#: Groups of a few records, of which one has too few for a density of its squares.
FEW = replace(CASES["Continuous, three groups"], records=(2, 3, 20))
#: Levels that groups share, where the noise hides what one group is like.
LEVELS = replace(CASES["Levels"], sigma=20.0, squares_sd=100.0)
#: A mean of its own for every cell of two factors: normals of coefficients go by cell.
CROSSED = CASES["Crossed"]


@pytest.mark.parametrize("case", [GROUPED, CASES["Two sides"], RIDGED, CROSSED],
                         ids=["groups", "two sides", "ridged", "crossed"])  # fmt: skip
def test_the_normal_is_the_law_of_coefficients_given_sums(case: Case) -> None:
    """Prior and density of T~ less the log density of the normal are one number, wherever
    coefficients are."""
    sweeps, _ = forward(case, 5, 30)
    moves = taught(sweeps)
    data, parameters = sweeps.data, moves.parameters
    laws = data.laws_at(moves.law())
    near, rng = moves.means.sums(laws, moves.point), np.random.default_rng(2)

    def less_the_normal(white: FloatArray, slack: float = 1.0) -> FloatArray:
        means = (near.mean + slack * near.drawn(white)).T
        there = data.with_means(laws, parameters.coefficients(means))
        cross = sum(np.where(law.target.used, law.log_cross, 0.0).sum(1) for law in there)
        prior = parameters.log_prior(replace(moves.point, means=means))
        return np.asarray(cross + prior + 0.5 * (white**2).sum(1))

    draws = [rng.standard_normal(near.mean.shape) for _ in range(3)]
    values = [less_the_normal(each) for each in draws]
    np.testing.assert_allclose(values[1:], [values[0]] * 2, rtol=1e-7, atol=1e-5)
    wrong = [less_the_normal(each, 1.05) for each in draws]
    assert np.abs(wrong[1] - wrong[0]).max() > 0.1


@pytest.mark.parametrize("case", [GROUPED, CASES["Two sides"], RIDGED],
                         ids=["groups", "two sides", "ridged"])  # fmt: skip
def test_what_squares_say_is_the_slope_of_their_gaps(case: Case) -> None:
    """Precision and linear term against differences of gaps, coefficient by coefficient, with xi
    held; without the part of T that follows the records they are others."""
    sweeps, log_p = forward(case, 5, 12)
    moves = taught(sweeps)
    data, parameters = sweeps.data, moves.parameters
    data.draw_random_numbers(1)
    data.begin(0, moves.law(), log_p)
    about = moves.point.means.T
    found = moves.means._of_squares(data.laws, about)

    def gaps(means: FloatArray) -> FloatArray:
        """Of all pairs of columns over their SDs, zero where squares are not looked at."""
        parts = []
        for law, (xi, _) in zip(data.with_means(data.laws, parameters.coefficients(means.T)),
                                data.inner, strict=True):  # fmt: skip
            gap, target = law.gap(law.cross_at(xi)), law.target
            for i in range(target.q):
                for j in range(i, target.q):
                    sd = np.sqrt(law.spread[i, j] * (1.0 + (i == j)))
                    parts.append((gap[i, j] / sd * (target.used & target.told)).T)
        return np.concatenate(parts).T  # (B, pairs and groups)

    step, slopes = 1e-5, []
    for c in range(about.shape[1]):
        off = step * (np.arange(about.shape[1]) == c)
        slopes.append((gaps(about + off) - gaps(about - off)) / (2.0 * step))
    slope = np.stack(slopes, axis=-1)
    precision = slope.swapaxes(-1, -2) @ slope
    left = (slope @ about[..., None])[..., 0] - gaps(about)
    linear = (slope.swapaxes(-1, -2) @ left[..., None])[..., 0]
    scale = np.abs(precision).max()
    np.testing.assert_allclose(found[0], precision, rtol=1e-4, atol=1e-6 * scale)
    np.testing.assert_allclose(found[1], linear, rtol=1e-4, atol=1e-6 * np.abs(linear).max())


def test_what_is_learned_of_squares_is_their_mean_over_chains() -> None:
    sweeps, log_p = forward(GROUPED, 5, 12)
    moves = taught(sweeps)
    data, means = sweeps.data, moves.means
    data.draw_random_numbers(1)
    data.begin(0, moves.law(), log_p)
    near = means.normal(data.laws, moves.point, 1.0)
    rough = means.roughly(data.laws, moves.point)  # every chain is a database of its own
    np.testing.assert_allclose(rough.mean, near.mean, rtol=1e-10)
    np.testing.assert_allclose(rough.root, near.root, rtol=1e-10)
    found = means._of_squares(data.laws, means.sums(data.laws, moves.point).mean)
    means.chains, means.learned = 4, [each[:3] for each in means.learned]
    means.normal(data.laws, moves.point, 0.25)
    for learned, squares in zip(means.learned, found, strict=True):
        of_three = squares.reshape(3, 4, *squares.shape[1:]).mean(1)
        np.testing.assert_allclose(learned, 0.75 * squares[:3] + 0.25 * of_three, rtol=1e-10)


def test_nothing_is_learned_after_the_warm_up() -> None:
    sweeps, _ = forward(GROUPED, 5, 8)
    moves = sweeps.moves
    assert moves is not None
    of_learned = ("information", "pull", "wide", "told", "middle")
    of_moves = ("lies", "spread", "log_width", "log_group_width")

    def after(rounds: int) -> list[FloatArray]:
        for i in range(rounds):
            sweeps.sweep(i)
        own = [getattr(moves.learned, name).copy() for name in of_learned]
        own += [each.copy() for each in moves.means.learned]
        return own + [getattr(moves, name).copy() for name in of_moves]

    first, second = after(2), after(2)
    assert not any(np.array_equal(*pair) for pair in zip(first, second, strict=True))
    sweeps.warm_up(1)
    third, fourth = after(0), after(3)
    assert all(np.array_equal(*pair) for pair in zip(third, fourth, strict=True))


@pytest.mark.parametrize("told", [1.0, 0.0, 1e12], ids=["told", "nothing told", "all told"])
@pytest.mark.parametrize("case", [GROUPED, RIDGED, CASES["Several, two groups"], CROSSED],
                         ids=["groups", "ridged", "several", "crossed"])  # fmt: skip
def test_proposals_far_out_are_refused(case: Case, told: float) -> None:
    """Steps of scales by any length, whatever the warm-up has learned: a chain goes on."""
    sweeps, log_p = forward(case, 5, 4)
    moves = taught(sweeps)
    learned = moves.learned
    # One direction in which nothing is told, as of slopes of a column that most records lack.
    vector = np.random.default_rng(1).standard_normal(moves.size)
    out = np.eye(moves.size) - np.outer(vector, vector) / (vector @ vector)
    eigen, axes = np.linalg.eigh(learned.wide)
    root = (axes * np.sqrt(told * np.maximum(eigen, 0.0))[..., None, :]).swapaxes(-1, -2) @ out
    learned.wide = root.swapaxes(-1, -2) @ root
    learned.wide_pull = told * learned.wide_pull
    sweeps.data.draw_random_numbers(1)
    moves.draw_random_numbers(1)
    sweeps.data.begin(0, moves.law(), log_p)
    moves.adapting = False
    for length in (1.0, 30.0, 300.0, 3000.0):
        moves.n_step[:] = length * np.sign(moves.n_step)
        moves.round(0)
        point = moves.point
        assert all(np.isfinite(getattr(point, name)).all() for name in vars(point))


@pytest.mark.parametrize(
    "case", [GROUPED, WIDE_NOISE, NOISY, CASES["Two sides"], FEW, RIDGED, LEVELS, CROSSED],
    ids=["groups", "wide noise", "one group", "two sides", "few records", "ridged", "levels",
         "crossed"],
)  # fmt: skip
@pytest.mark.slow
def test_moves_leave_the_law(case: Case) -> None:
    """The largest of one to two hundred z."""
    assert z_scores(case).max() < 4.5


@pytest.mark.parametrize("case", [WIDE_NOISE, RIDGED, FEW])
@pytest.mark.slow
def test_many_trades_leave_the_law(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes.many_trades(monkeypatch)
    assert z_scores(case).max() < 4.5


@pytest.mark.parametrize("case", [CASES["Continuous, three groups"], FEW, WIDE_NOISE],
                         ids=["groups", "few records", "several"])  # fmt: skip
def test_the_jacobian_of_a_step_of_t_is_that_of_differences(case: Case) -> None:
    """Of core slopes, and log variances and slopes of all groups, at another t."""
    moves = taught(forward(case, 3, 40)[0])
    start, parameters = moves.point, moves.parameters
    below, column = (parameters.row, parameters.column), parameters.row[0]
    step = np.linspace(-0.8, 0.8, moves.batch)

    def values_of(point: point_module.Point) -> FloatArray:
        groups = np.moveaxis(parameters.of_groups(point), 1, -1)
        return np.concatenate([point.core[below], groups.reshape(-1, moves.batch)])

    def moved(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        core, groups = start.core.copy(), values[len(below[0]) :]
        core[below] = values[: len(below[0])]
        groups = np.moveaxis(groups.reshape(moves.size, -1, moves.batch), -1, 1)
        moves.point = moves._with_groups(groups, replace(start, core=core))
        log_t = start.log_t.copy()
        log_t[column] += step
        point, log_jacobian = moves._with_core(replace(moves.point, log_t=log_t))
        return values_of(point), log_jacobian

    values, h = values_of(start), 1e-5
    columns = []
    for k in range(len(values)):
        shift = np.zeros_like(values)
        shift[k] = h
        columns.append((moved(values + shift)[0] - moved(values - shift)[0]) / (2.0 * h))
    log_det = np.linalg.slogdet(np.array(columns).transpose(2, 0, 1))[1]
    found = moved(values)[1]
    np.testing.assert_allclose(found, log_det, atol=1e-4)
    # Without the room that core slopes take.
    alone = moves._along(replace(moves._with_core(moves.point)[0], log_t=start.log_t))[1]
    assert np.abs(alone - log_det).max() > 0.01


@pytest.mark.parametrize("case", [WIDE_NOISE, FEW])
@pytest.mark.slow
def test_many_steps_of_t_leave_the_law(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes.many_steps_of_t(monkeypatch)
    assert z_scores(case).max() < 4.5


@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        (NOISY, mistakes.no_prior), (GROUPED, mistakes.no_reference),
        (NOISY, mistakes.no_tangent), (NOISY, mistakes.no_jacobian),
        (GROUPED, mistakes.no_sizes),
        (FEW, mistakes.spread_out), (FEW, mistakes.narrow_core), (RIDGED, mistakes.wide_ridge),
        (RIDGED, mistakes.no_room), (NOISY, mistakes.no_room_with_tau),
        (WIDE_NOISE, mistakes.no_area), (WIDE_NOISE, mistakes.no_jacobian_of_trades),
        (RIDGED, mistakes.no_jacobian_of_trades), (GROUPED, mistakes.slopes_left_out),
        (LEVELS, mistakes.wide_levels), (LEVELS, mistakes.wide_slopes_of_levels),
        (CROSSED, mistakes.no_room), (CROSSED, mistakes.no_reference),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_mistakes_are_told(
    case: Case, mistake: mistakes.Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert z_scores(case).max() > 6.0


def test_chains_start_near_what_is_declared() -> None:
    """Least squares would not: where a cell has no record of a kind they have no end."""
    case, rng = CASES["Two sides"], np.random.default_rng(5)
    truth = location_sbc.prior(case, 60, rng)
    noisy = []
    for d in range(60):
        own = {name: values[d] for name, values in truth.items()}
        combination, z = location_sbc.records(case, own, case.cell, rng)
        noisy.append(location_sbc.noisy_statistics(case, case.cell, combination, z, rng))
    target = LocationTarget.of(case.shape, case.cell, noisy, 1)
    streams = Streams(tuple(rng.spawn(60)), 1)
    sweeps = LocationSweeps(case.layout, target, case.all_priors, streams, 1)
    assert sweeps.moves is not None
    far = case.spread * (1.0 + point_module.FAR_START) + 1e-9
    reached = np.abs(sweeps.moves.point.means).max()
    assert 0.99 * far < reached <= far  # some are cut
    assert np.exp(sweeps.moves.point.log_tau).max() <= far
