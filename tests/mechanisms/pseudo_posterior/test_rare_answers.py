"""Answers that few records give: how far one of them moves a pseudo-posterior (methods 2.11).

The truth is the definition, as in ``test_outliers.py``: the largest log ratio of the two densities
over what is stated. Without the prior's pseudo-records it is passed."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.learned import LearnedTransform
from surveysynth.survey.transforms import Transform
from tests.mechanisms.pseudo_posterior.test_outliers import ratio_to_stated

N, EPSILON = 300, 10.8
PLAN = SamplingPlan(8, 150, 150)
CLAIMS = ss.Outcome("y", "binary")
GRANT = ss.Outcome("y", "semicontinuous", Transform("log"), spikes=(0.0,))
VISITS = ss.Outcome("y", transform=Transform("identity"))
#: The centre is off by more than a spread of the amounts below.
DECLARED = {"y": ss.Declared(float(np.exp(9.5)), 0.6)}


def frame_of(values: list[float]) -> pd.DataFrame:
    """Two strata; the first records have the given answers, the others zero."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({
        "g": np.resize(["a", "b"], N), "h": rng.choice(["f", "m"], N),
        "w": np.exp(4.0 + 0.3 * rng.standard_normal(N)), "y": np.zeros(N),
    })  # fmt: skip
    frame.loc[: len(values) - 1, "y"] = values
    return frame


def survey_of(frame: pd.DataFrame, outcome: ss.Outcome) -> ss.Survey:
    return ss.Survey.from_frame(
        frame, outcomes=(outcome,), weight="w", by=["g", "h"], strata="g", population_size=20_000
    )


def settings_of(plan: SamplingPlan = PLAN) -> MechanismSettings:
    return MechanismSettings(epsilon=EPSILON, plan=plan, declared=DECLARED)


def ratio(
    name: str,
    outcome: ss.Outcome,
    answers: tuple[list[float], list[float]],
    settings: MechanismSettings,
    records: float | None = None,
) -> float:
    """The largest log ratio of two databases with these answers, over epsilon / m."""

    def change(design: ss.PublicDesign) -> ss.PublicDesign:
        if records is None:
            return design
        return replace(design, pseudo=replace(design.pseudo, records=records))

    surveys = [survey_of(frame_of(values), outcome) for values in answers]
    return ratio_to_stated(get_model(name), surveys, settings, change)


AMOUNTS = np.exp(10.0 + 0.4 * np.array([-0.6, 0.1, 0.9])).tolist()
FAR = float(np.exp(13.2))


@pytest.mark.parametrize(
    ("outcome", "answers"),
    [
        pytest.param(CLAIMS, ([1.0], [1.0, 1.0]), id="one of two ones"),
        pytest.param(CLAIMS, ([], [1.0]), id="the only one"),
        pytest.param(GRANT, (AMOUNTS, [FAR, *AMOUNTS[1:]]), id="one of three amounts"),
        pytest.param(GRANT, ([], [FAR]), id="the only amount"),
    ],
)
def test_one_rare_answer_moves_the_draws_by_less_than_is_stated(
    outcome: ss.Outcome, answers: tuple[list[float], list[float]]
) -> None:
    assert ratio("fbs", outcome, answers, settings_of()) < 0.6


@pytest.mark.parametrize(
    ("outcome", "answers"),
    [
        pytest.param(CLAIMS, ([1.0], [1.0, 1.0]), id="one of two ones"),
        pytest.param(GRANT, ([], [FAR]), id="the only amount"),
    ],
)
def test_a_prior_that_is_worth_nothing_is_found(
    outcome: ss.Outcome, answers: tuple[list[float], list[float]]
) -> None:
    assert ratio("fbs", outcome, answers, settings_of(), records=1e-6) > 1.3


def test_counts_next_to_zero() -> None:
    """Without pseudo-records the sampler does not even converge at such means."""
    settings = settings_of(SamplingPlan())
    assert ratio("poisson", VISITS, ([1.0] * 3, [1.0] * 2 + [8.0]), settings) < 0.6


def test_their_number_follows_from_public_settings() -> None:
    for epsilon, m, expected in ((10.8, 3, 10.0), (3.6, 3, 30.0), (3.6, 1, 10.0), (21.6, 3, 10.0)):
        settings = MechanismSettings(epsilon=epsilon, m=m)
        assert settings.pseudo_records == pytest.approx(expected)
        pseudo = settings.prepared(survey_of(frame_of([1.0]), CLAIMS).design).pseudo
        assert pseudo is not None
        assert pseudo.records == pytest.approx(expected)


def test_amounts_need_a_public_scale_where_some_may_be_lacking() -> None:
    design = survey_of(frame_of(AMOUNTS), GRANT).design
    bare = MechanismSettings(epsilon=EPSILON)
    with pytest.raises(InputError, match="'y' needs a declared centre and spread"):
        get_model("fbs").of(bare.prepared(design))
    with_scale = get_model("fbs").of(settings_of().prepared(design))
    assert with_scale.of(settings_of().prepared(design)) == with_scale
    learned = replace(GRANT, transform=LearnedTransform(low=1.0, high=1e6))
    pseudo = bare.prepared(survey_of(frame_of(AMOUNTS), learned).design).pseudo
    assert pseudo is not None
    assert pseudo.typical == ((0.0, 1.0),)


def test_a_design_without_them_is_refused_unless_that_is_allowed() -> None:
    survey = survey_of(frame_of([1.0] * 100), CLAIMS)
    rng = np.random.default_rng(1)
    with pytest.raises(RefusedError, match="no pseudo-records"):
        ss.run_mechanism(
            ss.get_model("fbs"), survey.design, survey.confidential, settings_of(), rng
        )
    allowed = replace(settings_of(), small_strata="allow")
    assert allowed.prepared(survey.design) is survey.design
