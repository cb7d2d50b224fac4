"""Trades of variances against slopes of later columns, with what noisy sums tell held.

Noisy sums tell covariances. Where the variance of a column is far below their noise, they tell its
products with slopes and the whole variances of later columns: in all groups the variance may be
small and slopes large, and steps of either alone are short.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import (
    Parameters,
    Point,
    covariance,
)

#: A point, with the log Jacobian (B,) of the move to it: -inf where there is no such point.
Traded: TypeAlias = tuple[Point, FloatArray]
#: Of a point, the column, row or slope it is about, and steps (B,).
Trade: TypeAlias = Callable[[Parameters, Point, int, FloatArray], Traded]


def of(parameters: Parameters) -> list[tuple[Trade, list[int]]]:
    """Return trades and, of each, its columns or rows."""
    if not parameters.grouped:
        return []
    complete = parameters.row.size == parameters.q * (parameters.q - 1) // 2
    columns = list(range(parameters.q - 1)) if complete else []
    return [(traded, columns), (stretched, np.flatnonzero(parameters.earlier).tolist())]


def turned(parameters: Parameters, point: Point, number: int, step: FloatArray) -> Traded:
    """Return the point with s_0 turned against a slope by an angle (B,), groups along.

    The sum of squares of s_0 and of what the slope takes stays: noisy sums often tell little more.
    """
    row, column = parameters.row[number], parameters.column[number]
    own, other = np.exp(point.log_s[row]), np.exp(point.log_s[column])
    slope = point.core[row, column] * other
    moved = np.zeros((parameters.q + parameters.row.size, step.size))
    moved[row] = 2.0 * np.log(np.abs(np.cos(step) * own - np.sin(step) * slope) / own)
    moved[parameters.q + number] = (np.sin(step) * own + np.cos(step) * slope - slope) / other
    # A turn keeps areas of s_0 and slope; densities are of log s_0.
    return parameters.with_common(point, moved), -0.5 * moved[row]


def traded(parameters: Parameters, point: Point, column: int, step: FloatArray) -> Traded:
    """Return the point with log variances of a column moved by a step (B,), s_0 and groups alike.

    All else of Sigma of every group stays, and so on average with s_0, b and t, which moves by the
    step the other way, shared by the slopes of a row."""
    log_variance, lower, of_groups = with_variance(
        point.log_variance, point.core[..., None] + point.slopes, column, step[:, None]
    )
    later = (np.arange(parameters.q) > column)[:, None]
    log_t = point.log_t - later * step / np.maximum(parameters.earlier, 1)
    square, taken = np.exp(2.0 * point.log_s), later * np.exp(2.0 * point.log_t)
    log_whole = np.log(square + taken * square[column])
    log_now, core, of_common = with_variance(log_whole, point.core, column, step)
    taken = later * np.exp(2.0 * log_t + log_now[column])
    log_s = 0.5 * np.log(np.exp(log_now) - taken)
    shift = 2.0 * (point.log_s - log_s) + log_now - log_whole
    moved = replace(
        point, core=core, slopes=lower - core[..., None], log_variance=log_variance,
        log_s=log_s, log_t=log_t,
    )  # fmt: skip
    return _if_there(point, moved, of_groups.sum(-1) + of_common + shift.sum(0))


def stretched(parameters: Parameters, point: Point, row: int, step: FloatArray) -> Traded:
    """Return the point with t and deviations e of a row's slopes times exp(step), step (B,).

    The whole variance of that column stays, in every group, and so on average with s_0."""
    earlier, ones, there = np.arange(row), np.ones(parameters.q), parameters.slope[row, :row]
    log_variance, log_s, log_t = (
        values.copy() for values in (point.log_variance, point.log_s, point.log_t)
    )
    log_t[row] += step
    slopes, total = point.slopes.copy(), point.core[..., None] + point.slopes
    off = total[parameters.row, parameters.column] - parameters.about(point)[parameters.q :]
    own = (parameters.row == row)[:, None, None]
    slopes[parameters.row, parameters.column] += own * off * np.expm1(step)[:, None]
    sigma = covariance(total, np.exp(point.log_variance), earlier, ones)
    was, now = total[row, :row], point.core[row, :row, :, None] + slopes[row, :row]
    left = np.exp(log_variance[row]) + np.einsum("k...,kl...,l...->...", was, sigma, was)
    log_variance[row] = np.log(left - np.einsum("k...,kl...,l...->...", now, sigma, now))
    sigma = covariance(point.core, np.exp(2.0 * log_s), earlier, ones)
    squares = np.einsum("kk...,k->...", sigma, there) * np.exp(2.0 * point.log_t[row])
    log_s[row] = 0.5 * np.log(np.exp(2.0 * log_s[row]) - squares * np.expm1(2.0 * step))
    log_jacobian = parameters.groups * parameters.earlier[row] * step
    log_jacobian = log_jacobian + (point.log_variance - log_variance)[row].sum(-1)
    log_jacobian = log_jacobian + 2.0 * (point.log_s - log_s)[row]
    moved = replace(point, slopes=slopes, log_variance=log_variance, log_s=log_s, log_t=log_t)
    return _if_there(point, moved, log_jacobian)


def with_variance(
    log_variance: FloatArray, lower: FloatArray, column: int, step: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log variances (q, ...) and slopes (q, q, ...) with one log variance moved by a step.

    All of Sigma but one entry of its diagonal stays. Also returns the log Jacobian (...) of the
    move, no number where a variance would have to be negative.

    With V the variances, L the slopes and a column j of I - L, (I - L) (Sigma + t e_j e_j') (I -
    L)' is V + t aa' = M V* M' (Gill, Golub, Murray and Saunders 1974, method C1), and I - L* the
    inverse of M times I - L. The Jacobian of Sigma is v_1^q v_2^(q-1) ... v_q."""
    q, variance, a = len(log_variance), np.exp(log_variance), -lower[:, column]
    log_variance, lower = log_variance.copy(), lower.copy()
    log_variance[column] += step
    log_jacobian = step * (1.0 - q + column)
    left = -variance[column] * np.expm1(-step)
    # Of each column so far: entries of M below it over a, and what I - L* has in its row.
    rows = [(-np.expm1(-step), _unit(q, column, step) - lower[column])]
    for k in range(column + 1, q):
        new = variance[k] + left * a[k] ** 2
        row = lower[k] + sum(a[k] * share * own for share, own in rows)
        rows.append((left * a[k] / new, _unit(q, k, step) - row))
        left = left * variance[k] / new
        lower[k], log_variance[k] = row, np.log(new)
        log_jacobian = log_jacobian + (q - k) * (np.log(variance[k]) - log_variance[k])
    return log_variance, lower, log_jacobian


def _unit(size: int, place: int, step: FloatArray) -> FloatArray:
    """Return a column of the identity (size, ...)."""
    return np.asarray(np.eye(size)[place]).reshape(-1, *(1,) * step.ndim)


def _if_there(point: Point, moved: Point, log_jacobian: FloatArray) -> Traded:
    """Return the moved point, or the old one where a variance would have to be negative."""
    there = np.isfinite(log_jacobian)
    return point.chosen(there, moved), np.where(there, log_jacobian, -np.inf)
