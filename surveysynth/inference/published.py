"""How published estimates come from released draws, and the words that say so (methods 8)."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from surveysynth.inference.debias import Debiased, DebiasRecord
    from surveysynth.inference.synthesis import SyntheticDataset
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.models.base import Model
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign


def published_draws(
    spec: "Spec",
    design: "PublicDesign",
    model: "Model",
    private: "PrivateDraws",
    rng: np.random.Generator,
    progress: Callable[[str], None] | None = None,
) -> "Debiased":
    """The draws that synthetic data come from: debiased where the specification asks for it."""
    from surveysynth.inference.debias import Debiased, DebiasRecord, debias_draws

    if spec.synthesizer.inference == "paper":
        return Debiased(private, DebiasRecord("not asked for"))
    return debias_draws(model, design, private, rng, progress=progress)


def datasets_of(
    spec: "Spec",
    design: "PublicDesign",
    model: "Model",
    draws: "PrivateDraws",
    rng: np.random.Generator,
) -> "Iterator[SyntheticDataset]":
    """The synthetic datasets that a release of ``published_draws`` is made of, one at a time.

    Comparisons call both functions too, so that they judge what would be published.
    """
    from surveysynth.inference.synthesis import synthesise

    return synthesise(
        model,
        design,
        draws,
        replicates_per_draw=spec.privacy.replicates_per_draw,
        rng=rng,
        scale_to=design.population_size,
        variance="release" if spec.synthesizer.inference == "paper" else "sample",
    )


def inference_words(record: "DebiasRecord") -> str:
    """A paragraph of the privacy statement."""
    if record.status == "not asked for":
        return (
            "Inference is as in the papers: draws and variances were not corrected for the "
            "down-weighting of records and the smoothing of weights, and intervals cover less "
            "than they say."
        )
    variance = (
        "Variances come from datasets as the sample would have been, simulated from the same draws."
    )
    if record.debiased:
        factors = ", ".join(f"{factor:.3f}" for factor in np.exp(record.log_shift))
        return (
            "The synthetic data come from debiased draws. Down-weighting shrinks the residual "
            f"scales of the model; how much was found by running the mechanism on "
            f"{record.databases} databases of {record.n_simulated:,} records a round, simulated "
            f"from the released draws and public inputs alone, in {record.rounds} rounds. The "
            f"scales of every draw were multiplied by {factors}. {variance} Both are "
            "post-processing and cost no epsilon."
        )
    if record.status == "not converged":
        return (
            f"WARNING: DEBIASING DID NOT CONVERGE ({record.reason}). The synthetic data come from "
            "the draws as they were released: residual scales are too small, means of skewed "
            "outcomes with them, and intervals may cover less than they say. A larger epsilon or "
            f"fewer draws m would help. {variance}"
        )
    return (
        f"The draws were not debiased: {record.reason}. {variance} That is post-processing and "
        "costs no epsilon."
    )


def debias_facts(record: "DebiasRecord") -> dict[str, Any]:
    """For privacy.json: what was done to the draws, from public inputs alone."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(record).items()
    }
