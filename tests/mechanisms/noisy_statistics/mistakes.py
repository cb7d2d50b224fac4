"""Mistakes in moves of coefficients and variances, for tests that must tell them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location import moves as moves_module
from surveysynth.mechanisms.noisy_statistics.posterior.location import point as point_module
from surveysynth.mechanisms.noisy_statistics.posterior.location import trades
from surveysynth.mechanisms.noisy_statistics.posterior.location.cell_reference import CellNormal
from surveysynth.mechanisms.noisy_statistics.posterior.location.conditionals import Conditionals
from surveysynth.mechanisms.noisy_statistics.posterior.location.moves import Moves
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Parameters, Point
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import Normal

Install = Callable[[pytest.MonkeyPatch], None]


def no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients with a wider prior."""
    own = Parameters.squares
    monkeypatch.setattr(Parameters, "squares", lambda self, point: 0.05 * own(self, point))


def no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices about normals whose densities are forgotten."""
    monkeypatch.setattr(moves_module, "normal", lambda white: np.zeros(white.shape[1:]))


def no_tangent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of s_0 with the density of its logarithm."""
    monkeypatch.setattr(moves_module, "tangent", lambda point: np.zeros(point.log_s.shape[1]))


def no_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a logarithm as if they were of the scale."""
    own = point_module.log_scale
    monkeypatch.setattr(
        point_module, "log_scale", lambda value, *given: own(value, *given) - value
    )


def no_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups move along with their scales, and that their normal takes more room is forgotten."""
    own = Moves._along
    monkeypatch.setattr(
        Moves, "_along",
        lambda self, point: (own(self, point)[0], np.zeros(self.batch)),
    )


def spread_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """nu and s_0 given variances of groups that lie half as far again from s_0."""
    own = Conditionals._draw_pooled

    def farther(self: Conditionals, i: int, point: Point) -> Point:
        middle = 2.0 * point.log_s[..., None]
        spread = middle + 1.5 * (point.log_variance - middle)
        return replace(own(self, i, replace(point, log_variance=spread)),
                       log_variance=point.log_variance)  # fmt: skip

    monkeypatch.setattr(Conditionals, "_draw_pooled", farther)


def narrow_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Core slopes given those of groups, their own prior taken for three times as narrow."""
    own = Conditionals._draw_core

    def wrong(self: Conditionals, i: int, point: Point) -> Point:
        with monkeypatch.context() as patch:
            narrow = 9.0 * self.parameters.core_precision
            patch.setattr(self.parameters, "core_precision", narrow)
            return own(self, i, point)

    monkeypatch.setattr(Conditionals, "_draw_core", wrong)


def wide_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects of levels on log variances drawn as if their prior were twice as wide."""
    _with_wide_levels(monkeypatch, "_draw_levels")


def wide_slopes_of_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on slopes drawn as if their prior were twice as wide."""
    _with_wide_levels(monkeypatch, "_draw_core")


def _with_wide_levels(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    own = getattr(Conditionals, name)

    def wrong(self: Conditionals, i: int, point: Point) -> Point:
        with monkeypatch.context() as patch:
            wide = 0.25 * self.parameters.level_precision
            patch.setattr(self.parameters, "level_precision", wide)
            changed: Point = own(self, i, point)
            return changed

    monkeypatch.setattr(Conditionals, name, wrong)


def wide_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrunken interactions that are drawn as if they were shrunken less."""
    own = Parameters.ridge
    monkeypatch.setattr(Parameters, "ridge", lambda self, point: own(self, point) / 1.5**2)


def only(monkeypatch: pytest.MonkeyPatch, steps_of: Callable[[Moves], list[Any]]) -> None:
    """All of these steps in every round, after the slice of what groups have in common."""
    own = Moves.draw_random_numbers

    def draw(self: Moves, c: int) -> None:
        self.steps = steps_of(self)
        self.before = self.slopes = self.after = self.trades = 0
        self.log_width = np.full((self.databases, len(self.steps)), -0.5)
        own(self, c)

    monkeypatch.setattr(Moves, "draw_random_numbers", draw)
    monkeypatch.setattr(Moves, "_in_turn", lambda self, first, end: list(range(first, end)))


def many_steps_of_t(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps of t with core slopes in a round, and no other step."""

    def steps_of(self: Moves) -> list[Any]:
        later = np.flatnonzero(self.parameters.earlier).tolist()
        return 8 * [partial(self._of_slopes, j, True) for j in later]

    only(monkeypatch, steps_of)


def many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many turns in a round, and no other step."""
    only(monkeypatch, lambda self: [self._turned] * 8)


def many_trades(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many trades in a round, and no other step."""

    def steps_of(self: Moves) -> list[Any]:
        pairs = [(trade, place) for trade, places in trades.of(self.parameters) for place in places]
        return [partial(self._trade, *pair) for pair in 3 * pairs]

    only(monkeypatch, steps_of)


def no_jacobian_of_trades(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Moves._trade
    many_trades(monkeypatch)

    def wrong(self: Moves, *given: Any) -> tuple[Point, FloatArray, FloatArray]:
        point, log_jacobian, log_room = own(self, *given)
        return point, np.where(np.isfinite(log_jacobian), 0.0, log_jacobian), log_room

    monkeypatch.setattr(Moves, "_trade", wrong)


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients move along with s_0, and that they take more room is forgotten."""
    for kind in (Normal, CellNormal):
        monkeypatch.setattr(kind, "log_room", property(lambda self: np.zeros(len(self.mean))))


def no_room_with_tau(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients move along with tau, and that they take more room is forgotten."""
    own = Moves._of_coefficients

    def wrong(
        self: Moves, column: int, step: FloatArray
    ) -> tuple[Point, FloatArray, FloatArray]:
        point, log_jacobian, _ = own(self, column, step)
        return point, log_jacobian, self.log_room

    monkeypatch.setattr(Moves, "_of_coefficients", wrong)


def no_area(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many turns, as if densities were of s_0 and not of its logarithm."""
    own = Moves._turned
    many_turns(monkeypatch)

    def wrong(self: Moves, step: FloatArray) -> tuple[Point, FloatArray, FloatArray]:
        point, log_jacobian, log_room = own(self, step)
        return point, log_jacobian + (point.log_s - self.point.log_s).sum(0), log_room

    monkeypatch.setattr(Moves, "_turned", wrong)


def slopes_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws of the groups without their own slopes."""
    own = Parameters.covariances
    monkeypatch.setattr(
        Parameters, "covariances",
        lambda self, point: own(self, replace(point, slopes=np.zeros_like(point.slopes))),
    )  # fmt: skip
