"""How published estimates come from released draws, in words and as facts (methods 8)."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from surveysynth.inference.debias import DebiasRecord


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
