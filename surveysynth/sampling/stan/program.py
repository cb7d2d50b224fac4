"""What joins a model to its Stan program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from surveysynth._support.types import FloatArray, Theta


@dataclass(frozen=True)
class StanProgramSpec:
    """The Stan program of a model: a file of ``stan/`` and the ways in and out of it.

    data(stats, priors): the program's data for the statistics of one database, JSON-ready;
    theta(draws): the program's parameters by name, (S, ...), as the model's Theta.
    """

    program: str
    data: Callable[[Any, Mapping[str, float]], dict[str, Any]]
    theta: Callable[[Mapping[str, FloatArray]], Theta]
