"""The published simulation: its frame, and specifications of its releases (methods 7).

The frame has the cells of the tabular-products paper; a sample of 1,000 is drawn within fields, in
proportion to size, with replacement.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.evaluation.studies.population import published_cells, simulate_population

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "the frame of the published simulation"
#: The design of its samples.
DESIGN: Mapping[str, Any] = {"n": 1000, "design": "pps_wr", "size": "size"}
#: The epsilon of three draws.
EPSILON = 10.8
#: As a public report could say: salaries of about 100,000 dollars that differ by a factor of about
#: exp(0.42) within and between the cells. One center serves all cells, so that it reveals none.
DECLARED = {"centre": 100_000.0, "spread": 0.42}
#: Stream of random numbers; a study has others.
_POPULATION = 0


def published_frame(seed: int = 0) -> "pd.DataFrame":
    """Simulate 100,000 persons: field, gender, salary, and the measure of size."""
    stream = np.random.SeedSequence(seed, spawn_key=(_POPULATION,))
    return simulate_population(published_cells(), np.random.default_rng(stream))


def published_specs() -> dict[str, dict[str, Any]]:
    """Return the sections of a release by name: both mechanisms, and the papers' inference.

    The pseudo-posterior leaves small strata unpooled, as in the papers.
    """
    pseudo = {"mechanism": "pseudo_posterior", "epsilon": EPSILON, "small_strata": "allow"}
    made = {
        model + suffix: _release(pseudo, model=model, inference=inference)
        for model in ("fbs", "fbp")
        for suffix, inference in (("_paper", "paper"), ("", "debiased"))
    }
    noisy = {"mechanism": "noisy_statistics", "epsilon": EPSILON}
    made["fbs_noisy"] = {**_release(noisy, model="fbs"), "outcomes": {"salary": DECLARED}}
    return made


def _release(privacy: dict[str, Any], **synthesizer: Any) -> dict[str, Any]:
    return {
        "survey": {
            "weight": "weight", "strata": "field", "population_size": published_cells().size,
        },
        "synthesizer": {"outcome": "salary", "transform": "log", **synthesizer},
        "privacy": privacy,
        "tables": {"by": ["field", "gender"], "statistics": ["count", "mean"]},
    }  # fmt: skip
