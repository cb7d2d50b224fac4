"""A small survey with learned transforms by stratum: income, and tax with a spike and a split."""

import numpy as np
import pandas as pd

from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import LearnedTransform

INCOME = Outcome(
    "income", transform=LearnedTransform(low=0.0, high=5e6, share=0.07, by="strata")
)
TAX = Outcome(
    "tax", "semicontinuous",
    LearnedTransform(low=-5000.0, high=100_000.0, share=0.03, by="strata"),
    spikes=(0.0,), split=0.0,
)  # fmt: skip
#: Of files no fit is asked for.
SHORT = "chains = 8\ndraws = 60\nwarmup = 60"


def frame_of(n: int, seed: int = 3) -> pd.DataFrame:
    """Simulated records of three regions: a log-normal body with a Pareto tail; refunds."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["A", "B", "C"], n)
    body = np.exp(10.0 + 0.4 * (region == "A") + 0.6 * rng.normal(size=n))
    tail = 1e5 * (1.0 - rng.random(n)) ** (-1.0 / 1.8)
    sign = np.where(rng.random(n) < 0.1, 0.0, np.where(rng.random(n) < 0.2, -0.1, 1.0))
    return pd.DataFrame({
        "region": region,
        "sex": rng.choice(["f", "m"], n),
        "income": np.round(np.where(rng.random(n) < 0.04, tail, body)),
        "tax": np.round(np.clip(sign * np.exp(8.0 + 0.8 * rng.normal(size=n)), -4999, 99_999)),
        "weight": np.round(np.exp(4.0 + 0.3 * rng.normal(size=n)), 2),
    })  # fmt: skip


def survey_of(n: int, seed: int = 3) -> Survey:
    """The survey with both outcomes."""
    frame = frame_of(n, seed)
    return Survey.from_frame(
        frame, outcomes=(INCOME, TAX), weight="weight", by=("region", "sex"), strata="region",
        population_size=float(frame["weight"].sum()),
    )  # fmt: skip
