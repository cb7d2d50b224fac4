"""Moves of coefficients and variances with what is latent held, against forward simulation: from
parameters of the prior, records of these and noisy statistics of those, one application leaves the
joint law of parameters, moments and noisy numbers. Wrong ones are told."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location import augmentation, location_sweeps
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import Normals
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.models.general_location.scales import Scales
from surveysynth.sampling.sweeps import Streams
from tests.long_runs import location_sbc
from tests.long_runs.location_sbc import CASES, Case, X

DATABASES = 1500


def exact_moments(
    case: Case, target: LocationTarget, combination: IntArray, z: FloatArray
) -> list[tuple[FloatArray, FloatArray]]:
    """T (G, r, q) and Q (G, q, q) of every pattern, in units of u, by adding up records."""
    shape = case.shape
    cell = np.repeat(np.arange(len(X)), case.records)
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
    cell = np.repeat(np.arange(len(X)), case.records)
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


def z_scores(case: Case, *, turn: bool, rescale: bool, seed: int = 17) -> FloatArray:
    """Of the change of every summary over some applications."""
    sweeps, log_p = forward(case, seed)
    chains = sweeps.moves
    assert chains is not None
    before = summaries(sweeps)
    sweeps.data.draw_random_numbers(6)
    chains.draw_random_numbers(6)
    for i in range(6):
        sweeps.data.begin(i, sweeps.law(), log_p)
        if turn:
            chains.turn(i)
        if rescale:
            chains.rescale(i, i)
        sweeps.data.finish(i)
    difference = summaries(sweeps) - before
    error = difference.std(axis=0, ddof=1) / np.sqrt(DATABASES)
    return np.abs(difference.mean(axis=0)) / np.where(error > 0, error, 1.0)


Install = Callable[[pytest.MonkeyPatch], None]


def _no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients without their prior."""

    def value(
        self: location_sweeps.Moves, core: FloatArray, laws: augmentation.Laws, near: Normals
    ) -> FloatArray:
        own = self.data.log_factor(laws).sum(1)
        return np.asarray(own - near.log_density(core - near.mean))

    monkeypatch.setattr(location_sweeps.Moves, "_value", value)


def _no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The density that the ellipse stands for, counted twice."""
    monkeypatch.setattr(Normals, "log_density", lambda self, d: np.zeros(len(d)))


def _no_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a logarithm as if they were of the scale."""
    own = Scales._log_residual_prior
    monkeypatch.setattr(
        Scales, "_log_residual_prior", lambda self, log_scale: own(self, log_scale) - log_scale
    )


def _s_0_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variances move by one factor, what they are pooled about does not."""
    own = location_sweeps.Moves._move

    def move(self: location_sweeps.Moves, *given: object, jointly: bool) -> None:
        before = self.regressions.scales.s_0
        own(self, *given, jointly=jointly)  # type: ignore[arg-type]
        self.regressions.scales.s_0 = before

    monkeypatch.setattr(location_sweeps.Moves, "_move", move)


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


@pytest.mark.parametrize("case", [GROUPED, NOISY, CASES["Two sides"]],
                         ids=["groups", "one group", "two sides"])  # fmt: skip
@pytest.mark.slow
def test_moves_leave_the_law(case: Case) -> None:
    """The largest of one to two hundred z."""
    for turn, rescale in ((True, False), (False, True), (True, True)):
        assert z_scores(case, turn=turn, rescale=rescale).max() < 4.5, (turn, rescale)


@pytest.mark.parametrize(
    ("case", "mistake"),
    [(NOISY, _no_prior), (NOISY, _no_reference), (NOISY, _no_jacobian),
     (GROUPED, _s_0_stays), (GROUPED, _slopes_left_out)],
)  # fmt: skip
@pytest.mark.slow
def test_mistakes_are_told(case: Case, mistake: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert z_scores(case, turn=True, rescale=True).max() > 6.0
