"""Inference from released draws to published estimates, in words and as facts (methods 8)."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.templates import render

if TYPE_CHECKING:
    from surveysynth.inference.debias import DebiasRecord


def inference_words(record: "DebiasRecord") -> str:
    """Return a paragraph of the privacy statement, from ``templates/inference.j2``."""
    kinds = record.kinds if record.debiased else ()
    shifts = zip(kinds, record.log_shift, strict=record.debiased)
    factors = [(kind, f"{np.exp(shift):.3f}") for kind, shift in shifts]
    words = render(
        __package__,
        "templates/inference.j2",
        status=record.status,
        debiased=record.debiased,
        reason=record.reason,
        databases=record.databases,
        records=f"{record.n_simulated:,}",
        rounds=record.rounds,
        scales=[factor for kind, factor in factors if kind == "scale"],
        odds=[factor for kind, factor in factors if kind == "odds"],
    )
    return " ".join(words.split())


def debias_facts(record: "DebiasRecord") -> dict[str, Any]:
    """Return what was done to the draws, from public inputs alone, for privacy.json.

    Numbers have six significant digits, not the last ones, which are those of the draws.
    """
    return {
        name: [float(f"{each:.6g}") if isinstance(each, float) else each for each in value]
        if isinstance(value, tuple)
        else value
        for name, value in asdict(record).items()
    }
