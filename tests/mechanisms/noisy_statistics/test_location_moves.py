"""Moves of coefficients and variances with what is latent held, against forward simulation: from
parameters of the prior, records of these and noisy statistics of those, one application leaves the
joint law of parameters, moments and noisy numbers. Wrong ones are told."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location import moves as moves_module
from surveysynth.mechanisms.noisy_statistics.posterior.location import point as point_module
from surveysynth.mechanisms.noisy_statistics.posterior.location import trades
from surveysynth.mechanisms.noisy_statistics.posterior.location.conditionals import Conditionals
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moves import Moves
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Parameters, Point
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import (
    Normal,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.sampling.sweeps import Streams
from tests.long_runs import location_sbc
from tests.long_runs.location_sbc import CASES, Case, X

DATABASES = 1500


def exact_moments(
    case: Case, target: LocationTarget, combination: IntArray, z: FloatArray
) -> list[tuple[FloatArray, FloatArray]]:
    """T (G, r, q) and Q (G, q, q) of every pattern, in units of u, by adding up records."""
    shape = case.shape
    cell = case.cell
    tilde = np.hstack([X[cell], shape.indicators[combination]])
    result = []
    for number, each in zip(target.patterns, target.targets, strict=True):
        there = np.flatnonzero(shape.patterns[number])
        u = (z[:, there] - case.spread) / case.spread
        cross, squares = np.zeros(each.cross.shape[1:]), np.zeros(each.squares.shape[1:])
        for g in range(each.groups):
            own = (shape.pattern[combination] == number) & (shape.group[cell] == g)
            # x~ = a link, so that a = x~ link^+ in the axes that the group has.
            a = tilde[own] @ np.linalg.pinv(each.link[g])
            cross[g], squares[g] = a.T @ u[own], u[own].T @ u[own]
        result.append((cross, squares))
    return result


def forward(case: Case, seed: int) -> tuple[LocationSweeps, FloatArray]:
    """Chains that hold the parameters, counts and moments that their noisy numbers came from; and
    log probabilities (databases, C, D) of combinations."""
    rng = np.random.default_rng(seed)
    cell = case.cell
    truth = location_sbc.prior(case, DATABASES, rng)
    noisy, drawn = [], []
    for d in range(DATABASES):
        combination, z = location_sbc.records(case, {k: v[d] for k, v in truth.items()}, cell, rng)
        noisy.append(location_sbc.noisy_statistics(case, cell, combination, z, rng))
        drawn.append((combination, z))
    target = LocationTarget.of(case.shape, cell, noisy, 1)
    streams = Streams((np.random.default_rng(seed + 1),), 1)
    sweeps = LocationSweeps(case.layout, target, case.all_priors, streams, 1)
    _put(sweeps, truth)
    data, combinations = sweeps.data, len(case.shape.combinations)
    for d, (combination, _) in enumerate(drawn):
        row = cell * combinations + combination
        data.counts[d] = np.bincount(row, minlength=data.counts[d].size).reshape(len(X), -1)
    data.observe(data.counts)
    exact = [exact_moments(case, target, *each) for each in drawn]
    for p, geometry in enumerate(data.geometry):
        data.cross[p] = np.stack([own[p][0] for own in exact])
        squares = np.stack([own[p][1] for own in exact])
        data.scatter[p] = squares - geometry.explained(data.cross[p])
    log_p = np.zeros(data.counts.shape)
    for part, table in zip(case.layout.logits, sweeps.tables, strict=True):
        log_p += table.log_p(truth[f"logit_{part.name}"].reshape(DATABASES, -1), len(X))
    return sweeps, log_p


def _put(sweeps: LocationSweeps, truth: Theta) -> None:
    moves = sweeps.moves
    assert moves is not None
    point, parts = moves.point, moves.parameters.layout.regressions
    means, core, slopes = [], np.zeros_like(point.core), np.zeros_like(point.slopes)
    log_scales = {
        name: getattr(point, name).copy() for name in ("log_s", "log_nu", "log_t", "log_tau")
    }
    log_variance = np.empty_like(point.log_variance)
    for j, part in enumerate(parts):
        own = truth[f"coefficients_{part.name}"].T
        means.append(own[: part.columns.size])
        core[j, part.earlier] = own[part.columns.size :]
        log_variance[j] = np.log(truth[f"variance_{part.name}"])
        log_scales["log_tau"][j] = np.log(truth[f"coefficient_scale_{part.name}"])
        log_scales["log_s"][j] = 0.5 * log_variance[j, :, 0]
        if moves.parameters.grouped:
            log_scales["log_s"][j] = np.log(truth[f"pooled_scale_{part.name}"])
            log_scales["log_nu"][j] = np.log(truth[f"pooled_df_{part.name}"])
        if f"slopes_{part.name}" in truth:
            slopes[j, part.earlier] = np.moveaxis(truth[f"slopes_{part.name}"], -1, 0)
            log_scales["log_t"][j] = np.log(truth[f"slope_scale_{part.name}"])
    moves.point = replace(
        point, means=np.concatenate(means), core=core, slopes=slopes,
        log_variance=log_variance, **log_scales,
    )  # fmt: skip


def summaries(sweeps: LocationSweeps) -> FloatArray:
    """Numbers (databases, s) that tell parameters, T and W, and what they have to do with each
    other; bounded, since priors have heavy tails."""
    moves = sweeps.moves
    assert moves is not None
    theta, parts = moves.parameters.theta(moves.point), []
    for part in moves.parameters.layout.regressions:
        tau = np.tanh(np.log(theta[f"coefficient_scale_{part.name}"]))[:, None]
        c = theta[f"coefficients_{part.name}"]
        core = c / theta[f"coefficient_scale_{part.name}"][:, None]
        level = np.log(theta[f"variance_{part.name}"])
        parts += [
            np.tanh(core), np.tanh(core) ** 2, np.tanh(c), np.tanh(level), np.tanh(level) ** 2,
            np.tanh(level) * np.tanh(c[:, :1]), tau, tau**2,
        ]  # fmt: skip
        if moves.parameters.grouped:
            log_s = np.log(theta[f"pooled_scale_{part.name}"])[:, None]
            ratio, log_nu = level - 2.0 * log_s, np.log(theta[f"pooled_df_{part.name}"])
            nu = np.tanh(0.5 * (log_nu - 3.0))[:, None]
            parts += [
                np.tanh(ratio), np.tanh(ratio) ** 2, np.tanh(log_s), np.tanh(log_s) ** 2,
                nu, nu**2, nu * np.tanh(ratio) ** 2,
            ]  # fmt: skip
        if f"slopes_{part.name}" in theta:
            slopes = theta[f"slopes_{part.name}"].reshape(DATABASES, -1)
            t = np.tanh(np.log(theta[f"slope_scale_{part.name}"]))[:, None]
            parts += [np.tanh(slopes), np.tanh(slopes) ** 2, t, t**2, t * np.tanh(slopes) ** 2]
    if moves.parameters.ridged.size:
        left = moves.parameters.ridge(moves.point) * np.exp(-2.0 * moves.point.log_s)
        parts += [np.tanh(0.3 * left).T, (np.tanh(0.3 * left) * np.tanh(moves.point.log_s)).T]
    for p, target in enumerate(sweeps.target.targets):
        used = target.used[..., None, None]
        cross = np.where(used, np.tanh((sweeps.data.cross[p] - target.cross) / target.sigma), 0.0)
        gap = np.where(used, sweeps.data.scatter[p] - target.squares, 0.0)
        parts += [cross, cross**2, np.tanh(gap / target.squares_sd)]
    return np.concatenate([part.reshape(DATABASES, -1) for part in parts], axis=1)


def taught(sweeps: LocationSweeps) -> Moves:
    """Moves whose widths follow from all databases together, and from no single one of them."""
    moves = sweeps.moves
    assert moves is not None
    moves.learned.take(moves.point, 0)
    moves.adapting, learned = False, moves.learned
    low, high = np.quantile(learned.common(moves.point), [0.25, 0.75], axis=1)
    told = np.median(learned.told, axis=0) + np.diag(((high - low) / 1.35) ** -2)
    learned.told = np.broadcast_to(told, learned.told.shape)
    for name in ("information", "pull", "wide", "wide_pull", "middle"):
        values = getattr(learned, name)
        setattr(learned, name, np.broadcast_to(np.median(values, axis=0), values.shape))
    return moves


def z_scores(case: Case, seed: int = 17) -> FloatArray:
    """Of the change of every summary over some applications."""
    sweeps, log_p = forward(case, seed)
    moves = taught(sweeps)
    before = summaries(sweeps)
    sweeps.data.draw_random_numbers(6)
    moves.draw_random_numbers(6)
    for i in range(6):
        sweeps.data.begin(i, moves.law(), log_p)
        moves.round(i)
        sweeps.data.finish(i)
    difference = summaries(sweeps) - before
    error = difference.std(axis=0, ddof=1) / np.sqrt(DATABASES)
    return np.abs(difference.mean(axis=0)) / np.where(error > 0, error, 1.0)


Install = Callable[[pytest.MonkeyPatch], None]


def _no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients with a wider prior."""
    own = Parameters.squares
    monkeypatch.setattr(Parameters, "squares", lambda self, point: 0.05 * own(self, point))


def _no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices about normals whose densities are forgotten."""
    monkeypatch.setattr(moves_module, "normal", lambda white: np.zeros(white.shape[1:]))


def _no_tangent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of s_0 with the density of its logarithm."""
    monkeypatch.setattr(moves_module, "tangent", lambda point: np.zeros(point.log_s.shape[1]))


def _no_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a logarithm as if they were of the scale."""
    own = point_module.log_scale
    monkeypatch.setattr(
        point_module, "log_scale", lambda value, *given: own(value, *given) - value
    )


def _no_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups move along with their scales, and that their normal takes more room is forgotten."""
    own = Moves._along
    monkeypatch.setattr(
        Moves, "_along",
        lambda self, point: (own(self, point)[0], np.zeros(self.batch)),
    )


def _no_size_of_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Core slopes move along with t and tau, and that they take more room is forgotten."""
    with_core, along = Moves._with_core, Moves._along

    def wrong(self: Moves, point: Point) -> tuple[Point, FloatArray]:
        moved, _ = with_core(self, point)
        return moved, along(self, replace(point, core=moved.core))[1]

    monkeypatch.setattr(Moves, "_with_core", wrong)


def _spread_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """nu and s_0 given variances of groups that lie half as far again from s_0."""
    own = Conditionals._draw_pooled

    def farther(self: Conditionals, i: int, point: Point) -> Point:
        middle = 2.0 * point.log_s[..., None]
        spread = middle + 1.5 * (point.log_variance - middle)
        return replace(own(self, i, replace(point, log_variance=spread)),
                       log_variance=point.log_variance)  # fmt: skip

    monkeypatch.setattr(Conditionals, "_draw_pooled", farther)


def _no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Core slopes given those of groups, and their own prior forgotten."""
    own = Conditionals._draw_core
    monkeypatch.setattr(
        Conditionals, "_draw_core",
        lambda self, i, point: replace(
            own(self, i, replace(point, log_tau=point.log_tau + 9.0)), log_tau=point.log_tau
        ),
    )  # fmt: skip


def _wide_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrunken interactions that are drawn as if they were shrunken less."""
    own = Parameters.ridge
    monkeypatch.setattr(Parameters, "ridge", lambda self, point: own(self, point) / 1.5**2)


def _only(monkeypatch: pytest.MonkeyPatch, steps_of: Callable[[Moves], list[Any]]) -> None:
    """All of these steps in every round, after the slice of what groups have in common."""
    own = Moves.draw_random_numbers

    def draw(self: Moves, c: int) -> None:
        self.steps = steps_of(self)
        self.before = self.slopes = self.after = self.trades = 0
        self.log_width = np.full((self.databases, len(self.steps)), -0.5)
        own(self, c)

    monkeypatch.setattr(Moves, "draw_random_numbers", draw)
    monkeypatch.setattr(Moves, "_in_turn", lambda self: list(range(len(self.steps))))


def _turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many turns in a round, and no other step."""
    _only(monkeypatch, lambda self: [self._turned] * 8)


def _trades(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many trades in a round, and no other step."""

    def steps_of(self: Moves) -> list[Any]:
        pairs = [(trade, place) for trade, places in trades.of(self.parameters) for place in places]
        return [partial(self._trade, *pair) for pair in 3 * pairs]

    _only(monkeypatch, steps_of)


def _no_jacobian_of_trades(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Moves._trade
    _trades(monkeypatch)

    def wrong(self: Moves, *given: Any) -> tuple[Point, FloatArray, FloatArray]:
        point, log_jacobian, log_room = own(self, *given)
        return point, np.where(np.isfinite(log_jacobian), 0.0, log_jacobian), log_room

    monkeypatch.setattr(Moves, "_trade", wrong)


def _no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients move along with s_0, and that they take more room is forgotten."""
    monkeypatch.setattr(Normal, "log_room", property(lambda self: np.zeros(len(self.mean))))


def _no_room_with_tau(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients move along with tau, and that they take more room is forgotten."""
    own = Moves._of_coefficients

    def wrong(
        self: Moves, column: int, step: FloatArray
    ) -> tuple[Point, FloatArray, FloatArray]:
        point, log_jacobian, _ = own(self, column, step)
        return point, log_jacobian, self.log_room

    monkeypatch.setattr(Moves, "_of_coefficients", wrong)


def _no_area(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many turns, as if densities were of s_0 and not of its logarithm."""
    own = Moves._turned
    _turns(monkeypatch)

    def wrong(self: Moves, step: FloatArray) -> tuple[Point, FloatArray, FloatArray]:
        point, log_jacobian, log_room = own(self, step)
        return point, log_jacobian + (point.log_s - self.point.log_s).sum(0), log_room

    monkeypatch.setattr(Moves, "_turned", wrong)


def _slopes_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws of the groups without their own slopes."""
    own = Parameters.covariances
    monkeypatch.setattr(
        Parameters, "covariances",
        lambda self, point: own(self, replace(point, slopes=np.zeros_like(point.slopes))),
    )  # fmt: skip


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


@pytest.mark.parametrize("case", [GROUPED, CASES["Two sides"], RIDGED],
                         ids=["groups", "two sides", "ridged"])  # fmt: skip
def test_the_normal_is_the_law_of_coefficients_given_sums(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prior and density of T~ less the log density of the normal are one number, wherever
    coefficients are."""
    monkeypatch.setattr(sys.modules[__name__], "DATABASES", 30)
    sweeps, _ = forward(case, 5)
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
def test_what_squares_say_is_the_slope_of_their_gaps(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Precision and linear term against differences of gaps, coefficient by coefficient, with xi
    held; without the part of T that follows the records they are others."""
    monkeypatch.setattr(sys.modules[__name__], "DATABASES", 12)
    sweeps, log_p = forward(case, 5)
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


def test_nothing_is_learned_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DATABASES", 8)
    sweeps, _ = forward(GROUPED, 5)
    moves = sweeps.moves
    assert moves is not None
    of_learned = ("information", "pull", "wide", "told", "middle")
    of_moves = ("lies", "spread", "log_width", "log_group_width")

    def after(rounds: int) -> list[FloatArray]:
        for i in range(rounds):
            sweeps.sweep(i)
        own = [getattr(moves.learned, name).copy() for name in of_learned]
        return own + [getattr(moves, name).copy() for name in of_moves]

    first, second = after(2), after(2)
    assert not any(np.array_equal(*pair) for pair in zip(first, second, strict=True))
    sweeps.warm_up(1)
    third, fourth = after(0), after(3)
    assert all(np.array_equal(*pair) for pair in zip(third, fourth, strict=True))


@pytest.mark.parametrize("told", [1.0, 0.0, 1e12], ids=["told", "nothing told", "all told"])
@pytest.mark.parametrize("case", [GROUPED, RIDGED, CASES["Several, two groups"]],
                         ids=["groups", "ridged", "several"])  # fmt: skip
def test_proposals_far_out_are_refused(
    case: Case, told: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of scales by any length, whatever the warm-up has learned: a chain goes on."""
    monkeypatch.setattr(sys.modules[__name__], "DATABASES", 4)
    sweeps, log_p = forward(case, 5)
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
    "case", [GROUPED, WIDE_NOISE, NOISY, CASES["Two sides"], FEW, RIDGED],
    ids=["groups", "wide noise", "one group", "two sides", "few records", "ridged"],
)  # fmt: skip
@pytest.mark.slow
def test_moves_leave_the_law(case: Case) -> None:
    """The largest of one to two hundred z."""
    assert z_scores(case).max() < 4.5


@pytest.mark.parametrize("case", [WIDE_NOISE, RIDGED, FEW])
@pytest.mark.slow
def test_many_trades_leave_the_law(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    _trades(monkeypatch)
    assert z_scores(case).max() < 4.5


@pytest.mark.parametrize(
    ("case", "mistake"),
    [(NOISY, _no_prior), (GROUPED, _no_reference), (NOISY, _no_tangent), (NOISY, _no_jacobian),
     (GROUPED, _no_sizes), (WIDE_NOISE, _no_size_of_core), (FEW, _spread_out), (FEW, _no_core),
     (RIDGED, _wide_ridge), (RIDGED, _no_room), (NOISY, _no_room_with_tau),
     (WIDE_NOISE, _no_area), (WIDE_NOISE, _no_jacobian_of_trades),
     (RIDGED, _no_jacobian_of_trades), (GROUPED, _slopes_left_out)],
)  # fmt: skip
@pytest.mark.slow
def test_mistakes_are_told(case: Case, mistake: Install, monkeypatch: pytest.MonkeyPatch) -> None:
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
    sweeps = LocationSweeps(case.layout, target, case.all_priors, Streams(rng.spawn(60), 1), 1)
    assert sweeps.moves is not None
    far = case.spread * (1.0 + point_module.FAR_START) + 1e-9
    reached = np.abs(sweeps.moves.point.means).max()
    assert 0.99 * far < reached <= far  # some are cut
    assert np.exp(sweeps.moves.point.log_tau).max() <= far
