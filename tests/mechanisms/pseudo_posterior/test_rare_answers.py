"""Counts that few records have above zero: how far one moves a pseudo-posterior (methods 2.11).

The truth is the definition, as in ``test_outliers.py``: the largest log ratio of the two densities
over what is stated."""


import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.survey.transforms import Transform
from tests.mechanisms.pseudo_posterior.test_outliers import ratio_to_stated

N, EPSILON = 300, 10.8
VISITS = ss.Outcome("y", transform=Transform("identity"))


def frame_of(values: list[float]) -> pd.DataFrame:
    """Two strata; the first records have the given answers, the others zero."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({
        "g": np.resize(["a", "b"], N), "h": rng.choice(["f", "m"], N),
        "w": np.exp(4.0 + 0.3 * rng.standard_normal(N)), "y": np.zeros(N),
    })  # fmt: skip
    frame.loc[: len(values) - 1, "y"] = values
    return frame


def survey_of(values: list[float]) -> ss.Survey:
    return ss.Survey.from_frame(
        frame_of(values), outcomes=(VISITS,), weight="w", by=["g", "h"], strata="g",
        population_size=20_000,
    )  # fmt: skip


def test_counts_next_to_zero() -> None:
    """Without pseudo-records the sampler does not even converge at such means."""
    settings = MechanismSettings(epsilon=EPSILON)
    surveys = [survey_of(values) for values in ([1.0] * 3, [1.0] * 2 + [8.0])]
    assert ratio_to_stated(get_model("poisson"), surveys, settings) < 0.6


def test_their_number_follows_from_public_settings() -> None:
    for epsilon, m, expected in ((10.8, 3, 10.0), (3.6, 3, 30.0), (3.6, 1, 10.0), (21.6, 3, 10.0)):
        settings = MechanismSettings(epsilon=epsilon, m=m)
        assert settings.pseudo_records == pytest.approx(expected)
        assert settings.prepared(survey_of([1.0]).design).pseudo == pytest.approx(expected)
