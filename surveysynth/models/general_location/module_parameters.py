"""Parameters of outcomes in modules: those of every module, and which outcome is in which."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.general_location.completion import steadied
from surveysynth.models.general_location.layout import Layout
from surveysynth.survey.survey import PublicDesign

#: The module (.., p) of each outcome, among the parameters; those of module k begin with "k:".
MODULES = "modules"


def with_modules(thetas: Sequence[Theta], columns: Sequence[Sequence[int]]) -> Theta:
    """Return draws (m, ...) of all modules, whose outcomes have these positions."""
    of = np.zeros(sum(map(len, columns)), dtype=np.int64)
    result: Theta = {}
    for number, (theta, own) in enumerate(zip(thetas, columns, strict=True)):
        of[list(own)] = number
        result |= {f"{number}:{name}": values for name, values in theta.items()}
    draws = len(next(iter(result.values())))
    return {MODULES: np.tile(of, (draws, 1)).astype(np.float64), **result}


def of_module(theta: Theta, number: int) -> Theta:
    """Return the parameters of one module."""
    head = f"{number}:"
    return {name.removeprefix(head): each for name, each in theta.items() if name.startswith(head)}


def columns_by_module(modules: FloatArray) -> list[IntArray]:
    """Return the positions of the outcomes of each module, given the module (p,) of each."""
    return [np.flatnonzero(modules == number) for number in range(int(modules.max()) + 1)]


def steadied_modules(
    theta: Theta, design: PublicDesign, grouped: bool, scale: float
) -> Theta:
    """Return draws (m, ...) in which effects of missing answers have their prior."""
    result = dict(theta)
    for number, own in enumerate(columns_by_module(theta[MODULES][0])):
        part = replace(design, outcomes=tuple(design.outcomes[j] for j in own))
        layout = Layout.of(part, grouped)
        found = steadied(of_module(theta, number), layout, part.outcomes, scale)
        result |= {f"{number}:{name}": values for name, values in found.items()}
    return result
