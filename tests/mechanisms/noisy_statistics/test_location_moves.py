"""Moves of coefficients and variances with what is latent held, against forward simulation: from
parameters of the prior, records of these and noisy statistics of those, one application leaves the
joint law of parameters, moments and noisy numbers. Wrong ones are told."""

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location import point as point_module
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moves import Moves
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Point, log_prior
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import (
    MeanReference,
    Normal,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.models.general_location.sampler import Regressions
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
    regressions = sweeps.model.regressions
    assert regressions is not None
    scales = regressions.scales
    for j, part in enumerate(regressions.parts):
        name = part.part.name
        part.core = truth[f"coefficients_{name}"]
        scales.variance[j] = truth[f"variance_{name}"]
        scales.tau[j] = truth[f"coefficient_scale_{name}"]
        if scales.grouped:
            scales.s_0[j], scales.nu[j] = truth[f"pooled_scale_{name}"], truth[f"pooled_df_{name}"]
        if part.k:
            part.slopes, scales.t[j] = truth[f"slopes_{name}"], truth[f"slope_scale_{name}"]


def summaries(sweeps: LocationSweeps) -> FloatArray:
    """Numbers (databases, s) that tell parameters, T and W, and what they have to do with each
    other; bounded, since priors have heavy tails."""
    regressions = sweeps.model.regressions
    assert regressions is not None
    scales, parts = regressions.scales, []
    for j, part in enumerate(regressions.parts):
        core = part.core / scales.tau[j][:, None]
        ratio = np.log(scales.variance[j] / scales.s_0[j][:, None] ** 2)
        level = np.log(scales.variance[j])
        parts += [
            np.tanh(core), np.tanh(core) ** 2, np.tanh(part.core), np.tanh(level),
            np.tanh(level) ** 2, np.tanh(level) * np.tanh(part.core[:, :1]),
        ]  # fmt: skip
        if scales.grouped:
            parts += [np.tanh(ratio), np.tanh(ratio) ** 2, np.tanh(np.log(scales.s_0[j]))[:, None]]
    for p, target in enumerate(sweeps.target.targets):
        used = target.used[..., None, None]
        cross = np.where(used, np.tanh((sweeps.data.cross[p] - target.cross) / target.sigma), 0.0)
        gap = np.where(used, sweeps.data.scatter[p] - target.squares, 0.0)
        parts += [cross, cross**2, np.tanh(gap / target.squares_sd)]
    return np.concatenate([part.reshape(DATABASES, -1) for part in parts], axis=1)


def learned(sweeps: LocationSweeps) -> Moves:
    """Moves whose widths follow from all databases together, and from no single one of them."""
    moves = sweeps.moves
    assert moves is not None
    moves.point = Point.of(moves.regressions)
    moves._learn()
    moves.adapting = False
    common = moves._common()
    low, middle, high = np.quantile(common, [0.25, 0.5, 0.75], axis=0)
    spread = np.diag(((high - low) / 1.35) ** 2)
    for name in ("information", "common_told"):
        values = getattr(moves, name)
        setattr(moves, name, np.broadcast_to(np.median(values, axis=0), values.shape))
    moves.common_told = moves.common_told + np.linalg.inv(spread)
    moves.common_mean = np.broadcast_to(middle, common.shape)
    moves.common_variance = np.broadcast_to(spread, (DATABASES, *spread.shape))
    return moves


def z_scores(case: Case, seed: int = 17) -> FloatArray:
    """Of the change of every summary over some applications."""
    sweeps, log_p = forward(case, seed)
    moves = learned(sweeps)
    before = summaries(sweeps)
    sweeps.data.draw_random_numbers(6)
    moves.draw_random_numbers(6)
    for i in range(6):
        sweeps.data.begin(i, sweeps.law(), log_p)
        moves.round(i)
        sweeps.data.finish(i)
    difference = summaries(sweeps) - before
    error = difference.std(axis=0, ddof=1) / np.sqrt(DATABASES)
    return np.abs(difference.mean(axis=0)) / np.where(error > 0, error, 1.0)


Install = Callable[[pytest.MonkeyPatch], None]


def _no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients without their prior."""
    own = MeanReference.normal
    monkeypatch.setattr(
        MeanReference, "normal",
        lambda self, laws, maps, prior: own(self, laws, maps, 1e-4 * prior),
    )  # fmt: skip


def _no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients move with the rest, and the size of their normal is forgotten."""
    monkeypatch.setattr(Normal, "log_root", property(lambda self: np.zeros(len(self.mean))))


def _no_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a logarithm as if they were of the scale."""
    own = point_module._log_scale
    monkeypatch.setattr(
        point_module, "_log_scale", lambda scale, *given: own(scale, *given) - np.log(scale)
    )


def _no_stretching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log variances are stretched, and that this takes room is forgotten."""
    own = Moves._stretch
    monkeypatch.setattr(
        Moves, "_stretch", lambda self, step: (own(self, step)[0], np.zeros(self.batch))
    )


def _no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The normal that the warm-up has found is taken for the truth."""
    own = Moves._turn
    monkeypatch.setattr(
        Moves, "_turn", lambda self, step: (own(self, step)[0], np.zeros(self.batch))
    )


def _slopes_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws of the groups without their own slopes."""
    own = Regressions.state
    monkeypatch.setattr(
        Regressions, "state",
        lambda self: {k: v for k, v in own(self).items() if not k.startswith("slopes")},
    )  # fmt: skip


GROUPED = CASES["Several, two groups"]
SINGLE = CASES["Semicontinuous"]
#: Where noise leaves much to the priors.
NOISY = replace(SINGLE, sigma=40.0, squares_sd=200.0, count_sd=1.0)
#: Where the data tell coefficients, and how well hangs on the variances.
PRECISE = replace(GROUPED, sigma=0.5, squares_sd=60.0)
#: Groups of a few records, of which one has too few for a density of its squares.
FEW = replace(CASES["Continuous, three groups"], records=(2, 6, 20))


@pytest.mark.parametrize("case", [GROUPED, CASES["Two sides"], CASES["Continuous, three groups"]],
                         ids=["groups", "two sides", "continuous"])  # fmt: skip
def test_the_normal_is_the_law_of_coefficients_given_sums(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prior and density of T~ less the log density of the normal are one number, wherever
    coefficients are."""
    monkeypatch.setattr(sys.modules[__name__], "DATABASES", 30)
    sweeps, _ = forward(case, 5)
    moves = learned(sweeps)
    sweeps.data.laws = sweeps.data.laws_at(sweeps.law())
    near, rng = moves._near(sweeps.data.laws), np.random.default_rng(2)

    def less_the_normal(white: FloatArray, slack: float = 1.0) -> FloatArray:
        point = moves._with_coefficients(moves.point, near.at(slack * white))
        laws = moves._means(point, sweeps.data.laws)
        cross = sum(np.where(law.target.used, law.log_cross, 0.0).sum(1) for law in laws)
        return np.asarray(cross + log_prior(moves.regressions)[1] + 0.5 * (white**2).sum(1))

    draws = [rng.standard_normal(near.mean.shape) for _ in range(3)]
    values = [less_the_normal(each) for each in draws]
    np.testing.assert_allclose(values[1:], [values[0]] * 2, rtol=1e-7, atol=1e-5)
    wrong = [less_the_normal(each, 1.05) for each in draws]
    assert np.abs(wrong[1] - wrong[0]).max() > 0.1


def test_nothing_is_learned_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DATABASES", 8)
    sweeps, _ = forward(GROUPED, 5)
    moves = sweeps.moves
    assert moves is not None
    names = ("information", "common_told", "common_mean", "common_variance", "log_width",
             "log_group_width")  # fmt: skip

    def after(rounds: int) -> list[FloatArray]:
        for i in range(rounds):
            sweeps.sweep(i)
        return [getattr(moves, name).copy() for name in names]

    first, second = after(2), after(2)
    assert not any(np.array_equal(*pair) for pair in zip(first, second, strict=True))
    sweeps.warm_up(1)
    third, fourth = after(0), after(3)
    assert all(np.array_equal(*pair) for pair in zip(third, fourth, strict=True))


@pytest.mark.parametrize("case", [GROUPED, NOISY, CASES["Two sides"], FEW],
                         ids=["groups", "one group", "two sides", "few records"])  # fmt: skip
@pytest.mark.slow
def test_moves_leave_the_law(case: Case) -> None:
    """The largest of one to two hundred z."""
    assert z_scores(case).max() < 4.5


@pytest.mark.parametrize(
    ("case", "mistake"),
    [(NOISY, _no_prior), (PRECISE, _no_reference), (NOISY, _no_jacobian),
     (GROUPED, _no_stretching), (GROUPED, _slopes_left_out), (NOISY, _no_ratio)],
)  # fmt: skip
@pytest.mark.slow
def test_mistakes_are_told(case: Case, mistake: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert z_scores(case).max() > 6.0

