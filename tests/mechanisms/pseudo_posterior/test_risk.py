"""Risk measures as objects: their risks against the array functions and pandas, their checks."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior.risk import (
    CountBased,
    Lipschitz,
    NoRisk,
    Pairwise,
    RiskData,
    Scalar,
    pattern_codes,
    require_pattern,
    risk_measure,
)

N = 60


def data(seed=0, outcomes=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"sex": rng.choice(["F", "M"], N), "region": rng.choice(list("ABC"), N),
         "age": rng.integers(1, 3, N)}
    )  # fmt: skip
    return RiskData(rng.lognormal(2, 1, (N, outcomes)), rng.gamma(2, 2, N), frame)


MEASURES = (
    Lipschitz(), CountBased(), CountBased(pattern=("sex", "region")), Pairwise(0.4),
    Pairwise(2.0, absolute=True), Scalar(), NoRisk(),
)  # fmt: skip


@pytest.mark.parametrize("measure", MEASURES)
def test_risks_are_between_zero_and_one(measure):
    for outcomes in (1, 3):
        risks = measure.risks(data(outcomes=outcomes))
        assert risks.shape == (N,)
        assert ((risks >= 0) & (risks <= 1)).all()
    assert hash(measure) == hash(dataclasses.replace(measure))


def test_lipschitz_runs_from_zero_to_one_and_keeps_what_is_infinite():
    given = dataclasses.replace(data(), lipschitz=np.array([2.0, 4.0, np.inf, 3.0]))
    np.testing.assert_array_equal(Lipschitz().risks(given), [0.0, 1.0, np.inf, 0.5])


def test_patterns_are_the_groups_of_pandas():
    frame = data().frame
    codes = pattern_codes(frame, ("sex", "age", "region"), N)
    groups = frame.groupby(["sex", "age", "region"]).ngroup().to_numpy()
    pairs = set(zip(codes.tolist(), groups.tolist(), strict=True))
    assert len(pairs) == codes.max() + 1 == groups.max() + 1
    np.testing.assert_array_equal(pattern_codes(frame, (), N), np.zeros(N))


def test_count_based_risk_by_pandas():
    given = data()
    frame = given.frame.assign(y=given.outcome[:, 0])
    expected = [
        ((own := frame[(frame.sex == row.sex) & (frame.region == row.region)].y)
         .sub(row.y).abs().gt(0.3 * row.y).sum()) / len(own)
        for row in frame.itertuples()
    ]  # fmt: skip
    found = CountBased(0.3, ("sex", "region")).risks(given)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert (found > CountBased(0.9, ("sex", "region")).risks(given)).any()


@pytest.mark.parametrize("measure", [CountBased(), Pairwise(0.3, ("sex",))])
def test_the_largest_risk_over_outcomes_counts(measure):
    given = data(outcomes=2)
    each = [
        measure.risks(dataclasses.replace(given, outcome=given.outcome[:, [j]])) for j in (0, 1)
    ]
    assert (each[0] > each[1]).any()
    assert (each[1] > each[0]).any()
    np.testing.assert_array_equal(measure.risks(given), np.maximum(*each))


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("lipschitz", Lipschitz()),
        ("count", CountBased(0.3, ("sex",))),
        ("pairwise", Pairwise(0.3, ("sex",))),
        ("scalar", Scalar()),
        ("none", NoRisk()),
    ],
)
def test_measures_by_name(name, measure):
    found = risk_measure(name, radius=0.3, pattern=("sex",))
    assert found == measure
    assert type(found) is type(measure)
    assert found.name == name
    assert found.words


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: risk_measure("pairwis", radius=0.2), "Did you mean 'pairwise'"),
        (lambda: CountBased(0.0), "above 0"),
        (lambda: CountBased(float("nan")), "above 0"),
        (lambda: CountBased(1.5), "absolute radius"),
        (lambda: Pairwise(float("inf"), absolute=True), "finite"),
        (lambda: CountBased(True), "number above 0"),
        (lambda: CountBased(pattern="sex"), "list of names"),
        (lambda: CountBased(pattern=("sex", "sex")), "each once"),
        (lambda: require_pattern(CountBased(pattern=("sexe",)), data().frame), "mean 'sex'"),
    ],
)
def test_mistakes(make, match):
    with pytest.raises(InputError, match=match):
        make()
