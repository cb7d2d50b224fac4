"""Statistics of several modules of outcomes, each with noise of its own (strict 7, modules)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics

_KEY = "modules"


@dataclass(frozen=True)
class ModuleStatistics:
    """The statistics of each module with its outcomes, in the order declared.

    Their costs add up."""

    modules: tuple[LocationStatistics, ...]
    outcomes: tuple[tuple[str, ...], ...]

    @property
    def is_private(self) -> bool:
        """True if the noise of every module came from the operating system, exactly."""
        return all(each.is_private for each in self.modules)

    @property
    def rho(self) -> float:
        """What counts and moments by block cost, without sums by PSU."""
        return math.fsum(each.rho for each in self.modules)

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, words and nested lists."""
        return {
            _KEY: [
                {"outcomes": list(names), **each.to_dict()}
                for names, each in zip(self.outcomes, self.modules, strict=True)
            ]
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Return the inverse of ``to_dict``; raise ``InputError`` where entries do not fit."""
        found = given.get(_KEY)
        if set(given) != {_KEY} or not isinstance(found, list) or len(found) < 2:
            raise InputError("Noisy statistics of modules have one entry, a list of two or more.")
        if not all(isinstance(each, Mapping) and "outcomes" in each for each in found):
            raise InputError("Noisy statistics of modules name the outcomes of each.")
        rest = [{key: each[key] for key in each if key != "outcomes"} for each in found]
        return cls(
            tuple(LocationStatistics.from_dict(each) for each in rest),
            tuple(tuple(each["outcomes"]) for each in found),
        )
