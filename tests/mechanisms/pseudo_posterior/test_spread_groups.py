"""Spread by cell under risk weights: how many records a group has, and what one of them moves.

The truth is the definition of the guarantee, as in ``test_outliers.py``, on a cell whose spread is
a twentieth of the others' and a record of it that moves far away.
"""

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.models.general_location import groups
from surveysynth.models.general_location.groups import covariance_groups
from surveysynth.sampling.plan import SamplingPlan
from tests.mechanisms.pseudo_posterior.test_outliers import ratio_to_stated

PLAN = SamplingPlan(8, 500, 500)


def survey_of(
    small: int, *, n: int = 300, far: float | None = None, seed: int = 1
) -> ss.Survey:
    """A cell "s" of ``small`` records and a small spread; its first record is moved by ``far``."""
    rng = np.random.default_rng(seed)
    g = np.where(np.arange(n) < small, "s", rng.choice(["a", "b", "c"], n))
    y = 9.5 + np.where(g == "s", 0.03, 0.6) * rng.standard_normal(n)
    y[0] = y[0] if far is None else 9.5 + far
    frame = pd.DataFrame({"g": g, "w": np.exp(4.0 + 0.3 * rng.standard_normal(n)), "y": np.exp(y)})
    return ss.Survey.from_frame(
        frame, outcomes=(ss.Outcome("y", transform=ss.Transform("log")),), weight="w", by=["g"],
        population_size=20_000,
    )  # fmt: skip


def ratio(small: int, far: float, epsilon: float = 10.8, **frame: int) -> float:
    """The largest log ratio of two neighbors over epsilon / m."""
    surveys = survey_of(small, **frame), survey_of(small, far=far, **frame)
    settings = MechanismSettings(epsilon=epsilon, plan=PLAN)
    return ratio_to_stated(get_model("fbs", covariance_by=["g"]), surveys, settings)


@pytest.mark.parametrize(
    ("epsilon", "small", "own"),
    [(10.8, 60, True), (10.8, 59, False), (3.6, 539, False), (3.6, 540, True)],
)
def test_a_group_has_enough_records_or_shares_its_spread(
    epsilon: float, small: int, own: bool
) -> None:
    design = survey_of(small, n=2700).design
    prepared = MechanismSettings(epsilon=epsilon).prepared(design)
    found = covariance_groups(prepared, ["g"])
    assert (("s",) in found.labels) == own
    assert found.count == (4 if own else 3)
    # Without risk weights, and where small strata are allowed, every cell is a group.
    assert covariance_groups(design, ["g"]).count == 4
    allowed = MechanismSettings(epsilon=epsilon, small_strata="allow").prepared(design)
    assert covariance_groups(allowed, ["g"]).count == 4


@pytest.mark.slow
@pytest.mark.parametrize("far", [0.3, 1.5, 5.0])
def test_one_record_moves_the_draws_by_less_than_is_stated(far: float) -> None:
    assert ratio(60, far) < 0.95


@pytest.mark.slow
def test_a_small_bound_takes_more_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a third of the bound, in the database of seven where 180 records were too few."""
    assert ratio(540, 1.5, 3.6, n=2700, seed=5) < 0.95
    monkeypatch.setattr(groups, "RECORDS", 0.2)
    assert ratio(180, 1.5, 3.6, n=900, seed=5) > 1.5


@pytest.mark.slow
def test_a_group_of_few_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "RECORDS", 0.1)  # planted: 10 records are enough
    assert ratio(24, 1.5) > 1.2
