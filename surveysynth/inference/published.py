"""How published estimates come from released draws: releases, comparisons and studies alike."""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import numpy as np

from surveysynth.inference.debias import Debiased, DebiasRecord, debias_draws
from surveysynth.inference.synthesis import SyntheticDataset, synthesise
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.models.base import Model
from surveysynth.survey.survey import PublicDesign

Inference: TypeAlias = Literal["debiased", "paper"]
"""Draws debiased and variances as the sample would have them, or both as in the papers."""


def published_draws(
    model: Model,
    design: PublicDesign,
    private: PrivateDraws,
    rng: np.random.Generator,
    *,
    inference: Inference,
    progress: Callable[[str], None] | None = None,
) -> Debiased:
    """The draws that synthetic data come from: debiased where that is asked for."""
    if inference == "paper":
        return Debiased(private, DebiasRecord("not asked for"))
    return debias_draws(model, design, private, rng, progress=progress)


def datasets_of(
    model: Model,
    design: PublicDesign,
    draws: PrivateDraws,
    rng: np.random.Generator,
    *,
    inference: Inference,
    replicates_per_draw: int,
) -> Iterator[SyntheticDataset]:
    """The synthetic datasets that a release of ``published_draws`` is made of, one at a time.

    Raises as ``synthesise`` does.
    """
    return synthesise(
        model,
        design,
        draws,
        replicates_per_draw=replicates_per_draw,
        rng=rng,
        scale_to=design.population_size,
        variance="release" if inference == "paper" else "sample",
    )
