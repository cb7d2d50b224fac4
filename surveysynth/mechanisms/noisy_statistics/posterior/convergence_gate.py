"""Draws from noisy statistics that have converged, and how they came about: all of it public."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import INTERNAL_SUFFIX, IntArray, Theta
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model
from surveysynth.sampling.convergence import check_convergence


@dataclass(frozen=True)
class PosteriorRecord:
    """How the draws came about, all of it public: largest R-hat and smallest effective sample size
    by group of parameters, and rounds between kept draws."""

    r_hat: Mapping[str, float]
    ess: Mapping[str, float]
    thinning: int


def draws_if_converged(
    model: Model, theta: Theta, settings: NoisySettings, thinning: int
) -> tuple[PrivateDraws, PosteriorRecord] | RefusedError:
    """Draws of one database, (chains, draws, ...), if they have converged."""
    try:
        r_hat, ess = check_convergence(model.monitored(theta), None)
    except RefusedError as refusal:
        return refusal
    positions = _spread_out(settings.m, settings.plan.kept)
    released = {
        name: values.reshape(-1, *values.shape[2:])[positions]
        for name, values in theta.items()
        if not name.endswith(INTERNAL_SUFFIX)
    }
    return PrivateDraws(model.name, released, settings), PosteriorRecord(r_hat, ess, thinning)


def _spread_out(m: int, kept: int) -> IntArray:
    """Positions (m,) of m draws, evenly spaced over all chains."""
    return np.asarray((np.arange(m) * kept) // m + kept // (2 * m), dtype=np.int64)
