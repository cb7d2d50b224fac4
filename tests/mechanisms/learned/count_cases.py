"""A small survey with a count in cells of very different means."""

import numpy as np
import pandas as pd

from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import LearnedTransform

VISITS = Outcome("visits", "count", LearnedTransform(low=0, high=40))
MEANS = np.array([0.4, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def count_frame(n: int, seed: int = 3) -> pd.DataFrame:
    """Visits in eight cells with means from 0.4 to 6, an answer and an income that go with them."""
    rng = np.random.default_rng(seed)
    region, sex = rng.integers(0, 4, n), rng.integers(0, 2, n)
    frailty = rng.gamma(2.0, 0.5, n)
    visits = rng.poisson(MEANS[2 * region + sex] * frailty).clip(0, 40)
    return pd.DataFrame({
        "region": np.array(["N", "E", "S", "W"])[region],
        "sex": np.array(["f", "m"])[sex],
        "visits": visits,
        "insured": (rng.random(n) < 1.0 / (1.0 + np.exp(-0.2 - 0.4 * (frailty - 1.0)))).astype(int),
        "income": np.round(np.exp(10.0 + 0.5 * frailty + 0.4 * rng.normal(size=n)), -1),
        "unit": np.arange(n) % 25,
        "weight": np.round(np.exp(4.0 + 0.3 * rng.normal(size=n)), 2),
    })  # fmt: skip


def count_survey(n: int, seed: int = 3) -> Survey:
    """The survey with visits and a yes or no."""
    frame = count_frame(n, seed)
    return Survey.from_frame(
        frame, outcomes=(VISITS, Outcome("insured", "binary")), weight="weight",
        by=("region", "sex"), population_size=float(frame["weight"].sum()),
    )  # fmt: skip
