"""What a mechanism is: from a confidential survey to draws that may be published.

Each owns its settings, its guarantee in words, what it publishes beside the draws and how estimates
from them combine. Nothing outside this package knows risk weights, bounds or noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from surveysynth._support.types import Theta
from surveysynth.sampling.plan import SamplingPlan

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins; never with anything computed from the data."""


class Settings(Protocol):
    """What the settings of every mechanism tell: fixed before the data are seen, hence public."""

    @property
    def epsilon(self) -> float:
        """The target of the whole release."""

    @property
    def m(self) -> int:
        """Number of released draws."""

    @property
    def plan(self) -> SamplingPlan:
        """Size of a fit."""

    @property
    def private(self) -> bool:
        """Whether anything is protected at all."""

    @property
    def lipschitz_bound(self) -> float:
        """Bound on what one record adds to the log density of a draw; infinite without one."""


@dataclass(frozen=True)
class PrivateDraws:
    """What the mechanism releases: m draws of theta (leading axis m) and public settings."""

    model: str
    theta: Theta
    settings: Settings

    @property
    def lipschitz_bound(self) -> float:
        """The target bound of one draw, an upper bound on the realised one; none: infinite."""
        return self.settings.lipschitz_bound

    def draw(self, index: int) -> Theta:
        """Parameters of released draw ``index`` (from 0), without a leading axis."""
        return {name: values[index] for name, values in self.theta.items()}
