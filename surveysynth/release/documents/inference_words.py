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
        odds = " and makes rare levels of its outcomes rarer" if "odds" in record.kinds else ""
        return (
            "The synthetic data come from debiased draws. Down-weighting shrinks the residual "
            f"scales of the model{odds}; how much was found by running the mechanism on "
            f"{record.databases} databases of {record.n_simulated:,} records a round, simulated "
            f"from the released draws and public inputs alone, in {record.rounds} rounds. "
            f"{_factors(record)} {variance} Both are post-processing and cost no epsilon."
        )
    if record.status == "not converged":
        return (
            f"WARNING: DEBIASING DID NOT CONVERGE ({record.reason}). The synthetic data come from "
            "the draws as they were released: residual scales are too small, means of skewed "
            "outcomes with them, rare levels too rare, and intervals may cover less than they "
            f"say. A larger epsilon or fewer draws m would help. {variance}"
        )
    return (
        f"The draws were not debiased: {record.reason}. {variance} That is post-processing and "
        "costs no epsilon."
    )


def _factors(record: "DebiasRecord") -> str:
    """What the scales and odds of every draw were multiplied by."""
    sentences = []
    for kind, subject in (
        ("scale", "The scales"),
        ("odds", "The odds of the levels against the first of their outcome"),
    ):
        factors = [
            f"{np.exp(shift):.3f}"
            for shift, each in zip(record.log_shift, record.kinds, strict=True)
            if each == kind
        ]
        if factors:
            sentences.append(f"{subject} of every draw were multiplied by {', '.join(factors)}.")
    return " ".join(sentences)


def debias_facts(record: "DebiasRecord") -> dict[str, Any]:
    """For privacy.json: what was done to the draws, from public inputs alone; numbers to as many
    digits as mean something, and not to the last one, which is that of the draws."""
    return {
        name: [float(f"{each:.6g}") if isinstance(each, float) else each for each in value]
        if isinstance(value, tuple)
        else value
        for name, value in asdict(record).items()
    }
