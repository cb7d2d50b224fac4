"""Forward simulation for tests of moves: parameters of the prior, records of these, noisy
statistics of those, and chains that hold all three; what moves then change of their joint law."""

from dataclasses import replace

import numpy as np
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import (
    LocationSweeps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moves import Moves
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.sampling.sweeps import Streams
from tests.long_runs import location_sbc
from tests.long_runs.location_sbc import Case

DATABASES = 1500


def exact_moments(
    case: Case, target: LocationTarget, combination: IntArray, z: FloatArray
) -> list[tuple[FloatArray, FloatArray]]:
    """T (G, r, q) and Q (G, q, q) of every pattern, in units of u, by adding up records."""
    shape = case.shape
    cell = case.cell
    tilde = np.hstack([case.x[cell], shape.indicators[combination]])
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


def forward(case: Case, seed: int, databases: int = DATABASES) -> tuple[LocationSweeps, FloatArray]:
    """Chains that hold the parameters, counts and moments that their noisy numbers came from; and
    log probabilities (databases, C, D) of combinations."""
    rng = np.random.default_rng(seed)
    cell = case.cell
    truth = location_sbc.prior(case, databases, rng)
    noisy, drawn = [], []
    for d in range(databases):
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
        data.counts[d] = np.bincount(row, minlength=data.counts[d].size).reshape(len(case.x), -1)
    data.observe(data.counts)
    exact = [exact_moments(case, target, *each) for each in drawn]
    for p, geometry in enumerate(data.geometry):
        data.cross[p] = np.stack([own[p][0] for own in exact])
        squares = np.stack([own[p][1] for own in exact])
        data.scatter[p] = squares - geometry.explained(data.cross[p])
    log_p = np.zeros(data.counts.shape)
    for part, table in zip(case.layout.logits, sweeps.tables, strict=True):
        log_p += table.log_p(truth[f"logit_{part.name}"].reshape(databases, -1), len(case.x))
    return sweeps, log_p


def _put(sweeps: LocationSweeps, truth: Theta) -> None:
    moves = sweeps.moves
    assert moves is not None
    point, parts = moves.point, moves.parameters.layout.regressions
    means, core, slopes = [], np.zeros_like(point.core), np.zeros_like(point.slopes)
    log_scales = {
        name: getattr(point, name).copy() for name in ("log_s", "log_nu", "log_t", "log_tau")
    }
    log_variance, level = np.empty_like(point.log_variance), np.zeros_like(point.level)
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
        if f"level_variances_{part.name}" in truth:
            level[j] = truth[f"level_variances_{part.name}"].T
        if f"level_slopes_{part.name}" in truth:
            own = np.flatnonzero(moves.parameters.row == j) + len(parts)
            level[own] = truth[f"level_slopes_{part.name}"].transpose(2, 1, 0)
    moves.point = replace(
        point, means=np.concatenate(means), core=core, slopes=slopes,
        log_variance=log_variance, level=level, **log_scales,
    )  # fmt: skip


def summaries(sweeps: LocationSweeps) -> FloatArray:
    """Numbers (databases, s) that tell parameters, T and W, and what they have to do with each
    other; bounded, since priors have heavy tails."""
    moves = sweeps.moves
    assert moves is not None
    theta, parts = moves.parameters.theta(moves.point), []
    databases = sweeps.data.batch
    for part in moves.parameters.layout.regressions:
        tau = np.tanh(np.log(theta[f"coefficient_scale_{part.name}"]))[:, None]
        c = theta[f"coefficients_{part.name}"]
        slope = np.arange(c.shape[1]) >= part.columns.size
        core = c / np.where(slope, 1.0, theta[f"coefficient_scale_{part.name}"][:, None])
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
            slopes = theta[f"slopes_{part.name}"].reshape(databases, -1)
            t = np.tanh(np.log(theta[f"slope_scale_{part.name}"]))[:, None]
            parts += [np.tanh(slopes), np.tanh(slopes) ** 2, t, t**2, t * np.tanh(slopes) ** 2]
        for name in (f"level_variances_{part.name}", f"level_slopes_{part.name}"):
            if name in theta:
                values = np.tanh(2.0 * theta[name].reshape(databases, -1))
                parts += [values, values**2, values * np.tanh(level[:, :1])]
    if moves.parameters.ridged.size:
        left = moves.parameters.ridge(moves.point) * np.exp(-2.0 * moves.point.log_s)
        parts += [np.tanh(0.3 * left).T, (np.tanh(0.3 * left) * np.tanh(moves.point.log_s)).T]
    for p, target in enumerate(sweeps.target.targets):
        used = target.used[..., None, None]
        cross = np.where(used, np.tanh((sweeps.data.cross[p] - target.cross) / target.sigma), 0.0)
        gap = np.where(used, sweeps.data.scatter[p] - target.squares, 0.0)
        parts += [cross, cross**2, np.tanh(gap / target.squares_sd)]
    return np.concatenate([part.reshape(databases, -1) for part in parts], axis=1)


def taught(sweeps: LocationSweeps) -> Moves:
    """Moves whose widths follow from all databases together, and from no single one of them."""
    moves = sweeps.moves
    assert moves is not None
    moves.learned.take(moves.point, 0)
    moves.adapting, learned = False, moves.learned
    low, high = np.quantile(learned.common(moves.point), [0.25, 0.75], axis=1)
    told = np.median(learned.told, axis=0) + np.diag(((high - low) / 1.35) ** -2)
    learned.know(np.broadcast_to(told, learned.told.shape))
    for name in ("information", "pull", "wide", "wide_pull", "middle"):
        values = getattr(learned, name)
        setattr(learned, name, np.broadcast_to(np.median(values, axis=0), values.shape))
    return moves


def teach_squares(sweeps: LocationSweeps, moves: Moves) -> None:
    """What squares add to the normals of coefficients, likewise."""
    moves.means.normal(sweeps.data.laws, moves.point, 1.0)
    moves.means.learned = [
        np.broadcast_to(np.median(each, axis=0), each.shape) for each in moves.means.learned
    ]


def z_scores(case: Case, seed: int = 17) -> FloatArray:
    """Of the change of every summary over some applications."""
    sweeps, log_p = forward(case, seed)
    moves = taught(sweeps)
    before = summaries(sweeps)
    sweeps.data.draw_random_numbers(6)
    moves.draw_random_numbers(6)
    for i in range(6):
        sweeps.data.begin(i, moves.law(), log_p)
        if i == 0:
            teach_squares(sweeps, moves)
        moves.round(i)
        sweeps.data.finish(i)
    difference = summaries(sweeps) - before
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    return np.abs(difference.mean(axis=0)) / np.where(error > 0, error, 1.0)
