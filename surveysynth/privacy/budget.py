"""The price of a release: epsilon = 2 m max(Delta, max osc) (methods 2)."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from surveysynth.errors import InputError
from surveysynth.models.base import SamplingPlan

RiskMeasure = Literal["lipschitz", "none"]
WeightMap = Literal["fixed_point", "linear"]

#: A release must use at least this share of its target, and never more than all of it.
LEAST_SHARE = 0.97


def epsilon_of(bound: float, m: int) -> float:
    """epsilon = 2 m times the bound on max(Delta, max osc) of one draw."""
    return 2.0 * m * bound


@dataclass(frozen=True)
class MechanismSettings:
    """Everything about the mechanism that is fixed before the data are seen, hence public.

    epsilon: the target of the whole release of m draws; truncate: quantile of the draws' largest
    bounds above which draws are dropped (1: none); scale, shift, reweight: of linear weights, a
    scale of None is found for the target. Raises ``InputError`` for values out of range and for
    settings of linear weights beside the fixed point, which has none.
    """

    epsilon: float = 10.8
    m: int = 3
    risk: RiskMeasure = "lipschitz"
    weights: WeightMap = "fixed_point"
    scale: float | None = None
    shift: float = 0.0
    reweight: bool = False
    truncate: float = 1.0
    plan: SamplingPlan = field(default_factory=SamplingPlan)

    def __post_init__(self) -> None:
        for name, given, known in (
            ("risk", self.risk, get_args(RiskMeasure)),
            ("weights", self.weights, get_args(WeightMap)),
        ):
            if given not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, got {given!r}.")
        if not (np.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"epsilon must be a positive number, got {self.epsilon!r}.")
        if not isinstance(self.m, int) or self.m < 1:
            raise InputError(
                "m, the number of released draws, must be a whole number of at least 1, "
                f"got {self.m!r}."
            )
        if not 0 < self.truncate <= 1:
            raise InputError(f"truncate must be above 0 and at most 1, got {self.truncate!r}.")
        self._check_linear()
        if self.m > self.kept_draws:
            raise InputError(
                f"m = {self.m} draws cannot be released from {self.kept_draws} kept draws"
                f"{' after truncation' if self.truncate < 1 else ''}: raise draws or lower m."
            )

    def _check_linear(self) -> None:
        if self.scale is not None and not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"scale of linear weights must be positive, got {self.scale!r}.")
        if not 0 <= self.shift <= 1:
            raise InputError(f"shift of linear weights must be in [0, 1], got {self.shift!r}.")
        given = self.scale is not None or self.shift != 0 or self.reweight
        if self.weights == "fixed_point" and given:
            raise InputError(
                "scale, shift and reweight belong to weights = 'linear'; fixed-point weights are "
                "set by epsilon and m alone."
            )

    @property
    def kept_draws(self) -> int:
        """Draws that may generate data: all S, or under truncation the share that is kept."""
        return int(self.truncate * self.plan.kept)

    @property
    def target_bound(self) -> float:
        """Delta* = epsilon / (2 m), the target of max(Delta, max osc) of one draw."""
        return self.epsilon / (2.0 * self.m)

    @property
    def private(self) -> bool:
        """False under risk "none": alpha = 1 and no epsilon is claimed."""
        return self.risk != "none"
