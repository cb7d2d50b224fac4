"""Identification risk against the toy example of [S] and the formula written out by record."""

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.evaluation.microdata import identification_risk


def test_betty():
    """[S], toy example: 3 of 13 synthetic values in the ball; her own in it, or not."""
    truth = np.full(13, 50_000.0)
    inside = np.r_[[45_000.0, 40_000.0, 60_000.0], np.full(10, 90_000.0)]
    risk = identification_risk(truth, [inside], radius=0.2)
    assert risk.after[0] == pytest.approx(10 / 13)
    assert risk.after[5] == 0.0
    assert (risk.before == 0.0).all()


def by_record(y, datasets, radius, groups):
    risks = np.zeros(len(y))
    for i, own in enumerate(y):
        for values in datasets:
            members = values[groups == groups[i]]
            share = np.mean([abs(each - own) > radius * abs(own) for each in members])
            risks[i] += share * (abs(values[i] - own) <= radius * abs(own))
    return risks / len(datasets)


@pytest.mark.parametrize("pattern", [(), ("sex",), ("sex", "region")])
def test_the_formula_record_by_record(pattern):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"sex": rng.choice(["F", "M"], 80), "region": rng.choice(["N", "S"], 80)})
    y = np.r_[rng.lognormal(3, 1, 70), np.zeros(5), -rng.lognormal(3, 1, 5)]
    datasets = [np.where(rng.random(80) < 0.5, y, rng.permutation(y)) for _ in range(3)]
    groups = np.array(["/".join(row) for row in frame[list(pattern)].to_numpy()] or [""] * 80)
    found = identification_risk(y, datasets, radius=0.3, frame=frame, pattern=pattern)
    np.testing.assert_allclose(found.after, by_record(y, datasets, 0.3, groups), atol=1e-12)
    np.testing.assert_allclose(found.before, by_record(y, [y], 0.3, groups), atol=1e-12)
    summary = found.summary().set_index("risk")
    assert summary.loc["after", "mean"] == pytest.approx(found.after.mean())
    assert summary.loc["before", "max"] == found.before.max()


def test_publishing_the_data_themselves_leaves_the_risk_as_it_is():
    y = np.random.default_rng(3).lognormal(3, 1, 200)
    risk = identification_risk(y, [y, y], radius=0.2)
    np.testing.assert_array_equal(risk.after, risk.before)
    independent = identification_risk(y, [np.random.default_rng(4).permutation(y)], radius=0.2)
    assert independent.after.mean() < 0.5 * risk.after.mean()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"synthetic": []}, "at least one"),
        ({"synthetic": [np.ones(3)]}, "dataset 1: expected 4"),
        ({"radius": 2.0}, "absolute radius"),
        ({"pattern": ("sex",)}, "no public column 'sex'"),
        ({"pattern": ("sex",), "frame": pd.DataFrame({"sex": ["F"]})}, "expected 4 rows"),
    ],
)
def test_mistakes(arguments, match):
    options = {"synthetic": [np.ones(4)], "radius": 0.2, **arguments}
    with pytest.raises(InputError, match=match):
        identification_risk(np.ones(4), options.pop("synthetic"), **options)
