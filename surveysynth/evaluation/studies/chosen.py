"""The study that a caller chooses: of a specification, or one of the two simulations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surveysynth.errors import InputError
from surveysynth.evaluation.studies import coverage
from surveysynth.evaluation.studies.coverage import NOISE_METHODS, CoverageStudy
from surveysynth.evaluation.studies.specified import study_of
from surveysynth.spec.spec import load_spec

#: Of the published simulation.
DEFAULT_METHODS = (*NOISE_METHODS, "fbs_paper", "fbs", "fbp_paper", "fbp")


def chosen_study(
    spec: str | Path | None = None,
    *,
    replicates: int | None = None,
    seed: int = 0,
    two_stage: bool = False,
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
) -> CoverageStudy:
    """The study of a specification file; without one the published simulation, or with
    ``two_stage`` that of clusters.

    replicates: number of samples; without one that of the file, or 100. methods, epsilons: where
    given, in the place of those of the file or the simulation; an epsilon is for as many draws as
    the pseudo-posterior's settings have. Raises ``InputError`` for what cannot be a study.
    """
    if not all(np.isfinite(each) and each > 0 for each in epsilons):
        raise InputError("every epsilon must be a finite number above zero.")
    if spec is not None and two_stage:
        raise InputError("--two-stage is a study of its own: give it or a specification.")
    if spec is not None:
        return study_of(
            load_spec(spec), seed=seed, replicates=replicates, methods=methods, epsilons=epsilons
        )
    changes: dict[str, Any] = {"seed": seed, "replicates": replicates or 100}
    if methods:
        changes["methods"] = tuple(methods)
    if epsilons:
        m = coverage.paper_study().settings.m
        changes["bounds"] = tuple(each / (2.0 * m) for each in epsilons)
    if two_stage:
        return coverage.two_stage_study(**changes)
    return coverage.paper_study(**{"methods": DEFAULT_METHODS, **changes})
