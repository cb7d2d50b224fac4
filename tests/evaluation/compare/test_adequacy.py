"""Shares, densities and distances of the adequacy report. Truth: pandas and sums written out,
SciPy's kernel density, bars read back from the figures."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import gaussian_kde

from surveysynth.estimation.quantiles import weighted_quantiles
from surveysynth.evaluation.compare import adequacy
from surveysynth.evaluation.compare.adequacy import (
    Findings,
    chosen,
    rows_with_sample,
    shares_of,
    with_fewer_records,
)
from surveysynth.evaluation.compare.adequacy_report import outcome_figure, weight_figure
from surveysynth.evaluation.compare.distributions import QUARTILES, bandwidth, density
from surveysynth.evaluation.compare.tables import distances
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.figure_style import MARK
from surveysynth.release.tables.labels import Labels
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, Survey
from surveysynth.survey.transforms import Transform
from tests.surveys import make_survey, small_survey

POWER = Transform("yeo_johnson", scale=1000.0, power=0.5)
KINDS = (
    Outcome("salary", transform=POWER, lower=0.0),
    Outcome("benefit", "semicontinuous", POWER, spikes=(0.0, 150.0)),
    Outcome("employed", "binary", levels=("no", "yes")),
    Outcome("status", "categorical", levels=("single", "married", "other")),
    Outcome("tax", "semicontinuous", POWER, spikes=(0.0,), split=0.0),
)


def values_of_kinds(n: int, seed: int, spike: float = 0.6) -> np.ndarray:
    """(n, 5) values of the kinds above."""
    rng = np.random.default_rng(seed)
    amount = POWER.inverse(rng.normal(2.0, 0.7, n))
    at = rng.choice(3, n, p=[0.9 - spike, spike, 0.1])
    benefit = np.select([at == 1, at == 2], [0.0, 150.0], POWER.inverse(rng.normal(1.0, 0.3, n)))
    works, status = rng.integers(0, 2, n), rng.integers(0, 3, n)
    tax = rng.choice([-1.0, 0.0, 1.0], n, p=[0.3, 0.3, 0.4]) * amount
    return np.stack([amount, benefit, works, status, tax], axis=1)


def survey_of_kinds(n: int = 400) -> tuple[Survey, SyntheticDataset]:
    """A survey with an outcome of each kind, and a dataset with far more zeros."""
    frame = small_survey(n)
    survey = make_survey(frame)
    weight = frame["weight"].to_numpy()
    rng = np.random.default_rng(8)
    drawn, smooth = weight * np.exp(rng.normal(0, 0.2, n)), np.full(n, weight.mean())
    mine, theirs = values_of_kinds(n, 1), values_of_kinds(n, 2, spike=0.8)
    survey = Survey(replace(survey.design, outcomes=KINDS), Confidential(mine, weight))
    return survey, SyntheticDataset(1, 1, theirs, smooth * 0.5, theirs, drawn)


def findings(survey: Survey, dataset: SyntheticDataset) -> Findings:
    facts: Any = SimpleNamespace(labels=Labels())
    return Findings(facts, survey, {}, shares_of(survey, dataset), dataset, None)


def share_by_hand(
    inside: np.ndarray, within: np.ndarray, weight: np.ndarray, strata: np.ndarray
) -> tuple[float, float]:
    """A ratio of two weighted sums and its error from records in strata."""
    total = weight[within].sum()
    share = weight[within & inside].sum() / total
    u = np.where(within, weight * (inside - share) / total, 0.0)
    squares = 0.0
    for stratum in np.unique(strata):
        of_stratum = u[strata == stratum]
        squares += of_stratum.size * of_stratum.var(ddof=1)
    return share, float(np.sqrt(squares))


def test_shares_of_levels_spikes_and_tails_are_those_of_the_records() -> None:
    survey, dataset = survey_of_kinds()
    found = {
        (name, part.name): part
        for name, parts in shares_of(survey, dataset).items() for part in parts
    }  # fmt: skip
    w, strata = survey.confidential.sampling_weight, survey.design.strata
    assert w is not None
    assert strata is not None
    mine, theirs = survey.confidential.outcome, dataset.outcome
    spikes = [(mine[:, 1] == 0.0) | (mine[:, 1] == 150.0), np.isin(theirs[:, 1], [0.0, 150.0])]
    everyone = np.ones(w.size, dtype=bool)
    expected = {
        ("benefit", "at no spike"): (~spikes[0], everyone, ~spikes[1], everyone),
        ("benefit", "at 0"): (mine[:, 1] == 0, everyone, theirs[:, 1] == 0, everyone),
        ("benefit", "at 150"): (mine[:, 1] == 150, everyone, theirs[:, 1] == 150, everyone),
        ("employed", "yes"): (mine[:, 2] == 1, everyone, theirs[:, 2] == 1, everyone),
        ("status", "other"): (mine[:, 3] == 2, everyone, theirs[:, 3] == 2, everyone),
        ("tax", "above 0"): (mine[:, 4] > 0, everyone, theirs[:, 4] > 0, everyone),
        ("tax", "below 0"): (mine[:, 4] < 0, everyone, theirs[:, 4] < 0, everyone),
        ("tax", "at 0"): (mine[:, 4] == 0, everyone, theirs[:, 4] == 0, everyone),
    }
    for column, name, within, theirs_within in (
        (0, "salary", everyone, everyone), (1, "benefit", ~spikes[0], ~spikes[1]),
        (4, "tax", mine[:, 4] != 0.0, theirs[:, 4] != 0.0),
    ):  # fmt: skip
        ranked = pd.Series(w[within], index=mine[within, column]).sort_index().cumsum()
        for side, level in (("below", 0.01), ("above", 0.99)):
            bound = ranked.index[(ranked >= level * ranked.iloc[-1] * (1 - 1e-12)).argmax()]
            sign = 1 if side == "above" else -1
            expected[name, f"{side} the sample's {level:.0%} quantile"] = (
                sign * mine[:, column] > sign * bound, within,
                sign * theirs[:, column] > sign * bound, theirs_within,
            )  # fmt: skip
    for key, (inside, within, their_inside, their_within) in expected.items():
        share, se = share_by_hand(inside, within, w, strata)
        part = found[key]
        assert part.sample == pytest.approx(share, rel=1e-12), key
        assert part.se == pytest.approx(se, rel=1e-9), key
        synthetic = dataset.weight[their_within & their_inside].sum()
        assert part.synthetic == pytest.approx(synthetic / dataset.weight[their_within].sum()), key
    assert len(found) == 2 + 5 + 2 + 3 + 5 + 2
    frame = findings(survey, dataset).shares_frame().set_index(["variable", "part"])
    # The planted zeros are far off, what was drawn alike is not.
    assert frame.loc[("benefit", "at 0"), "difference"] > 4
    assert abs(frame.loc[("status", "single"), "difference"]) < 4


def test_the_weight_is_that_of_a_dataset_as_the_sample_would_have_been() -> None:
    survey, dataset = survey_of_kinds()
    weight = survey.confidential.sampling_weight
    assert weight is not None
    (low, high) = shares_of(survey, dataset)["weight"]
    relative, drawn = (each / each.mean() for each in (weight, dataset.variance_weight))
    for part, level, sign in ((low, 0.01, -1), (high, 0.99, 1)):
        bound = np.sort(relative)[int(np.ceil(level * relative.size)) - 1]
        assert part.sample == np.mean(sign * relative > sign * bound)
        assert part.synthetic == np.mean(sign * drawn > sign * bound)
    assert high.synthetic > 0  # smoothed weights, which are all equal here, have no tail


@given(
    arrays(np.float64, 12, elements=st.floats(-1e9, 1e9)),
    arrays(np.float64, 12, elements=st.floats(-1e9, 1e9)),
    arrays(np.float64, 12, elements=st.one_of(st.floats(0, 1e6), st.just(np.nan))),
)
def test_a_distance_is_in_errors_of_the_sample_or_is_none(
    estimate: np.ndarray, sample: np.ndarray, se: np.ndarray
) -> None:
    found = distances(estimate, sample, se)
    for mine, theirs, error, apart in zip(estimate, sample, se, found, strict=True):
        if error > 1e-9 * abs(theirs):
            with np.errstate(over="ignore"):
                assert apart == pytest.approx((mine - theirs) / error)
        else:
            assert np.isnan(apart)


def test_only_far_rows_are_flagged_and_withheld_ones_are_not_compared() -> None:
    cells = pd.DataFrame({"sex": list("abcde"), "is_margin": False, "n": 9})
    published = cells.assign(estimate=[10.0, 13.1, 6.9, 12.9, np.nan], se=1.0)
    sample = cells.assign(estimate=10.0, se=[0.0, 1.0, 1.0, 1.0, 1.0])
    table = rows_with_sample(published, sample, ["sex"])
    np.testing.assert_allclose(table["difference"], [np.nan, 3.1, -3.1, 2.9, np.nan])
    assert table["beyond"].tolist() == [False, True, True, False, False]
    facts: Any = None
    survey: Any = None
    dataset: Any = None
    found = Findings(facts, survey, {("mean", "y"): table, ("count", None): table}, {}, dataset, 0)
    assert (found.compared, found.beyond) == (6, 4)


@pytest.mark.parametrize("shape", ["normal", "two humps", "heavy tail"])
def test_densities_are_those_of_scipy(shape: str) -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal(3000)
    if shape == "two humps":
        values[:1000] = 4 + 0.3 * values[:1000]
    if shape == "heavy tail":
        values = rng.standard_t(3, 3000)
    weight = np.exp(0.5 * rng.standard_normal(3000))
    grid = np.linspace(-4, 6, 400)
    width = bandwidth(values, weight, weighted_quantiles(values, weight, np.array(QUARTILES)))
    kernel = gaussian_kde(values, weights=weight)
    kernel.set_bandwidth(width / np.sqrt(kernel.covariance[0, 0]) * kernel.factor)
    made = density(values, weight, grid, width)
    expected = kernel(grid)
    assert np.abs(made - expected).max() < 0.01 * expected.max()
    unweighted = density(values, np.ones(3000), grid, width)
    tilted = density(values, np.exp(values), grid, width)
    assert np.abs(tilted - unweighted).max() > 0.1 * expected.max()


def test_the_bandwidth_is_silvermans_for_as_many_records_as_the_weights_are_worth() -> None:
    values, quartiles = np.random.default_rng(4).standard_normal(4000), np.array([-0.6745, 0.6745])
    for weight, records in ((np.ones(4000), 4000), (np.repeat([1.0, 0.0], 2000), 2000)):
        made = bandwidth(values, weight, quartiles)
        assert made == pytest.approx(0.9 * records**-0.2, rel=0.05)


def test_a_lump_with_far_outliers_is_drawn_and_not_smeared() -> None:
    values = np.concatenate([np.zeros(600), np.linspace(-1, 1, 399), [1e9]])
    grid = np.linspace(-1.1, 1.1, 400)
    wide = bandwidth(values, np.ones(1000), np.zeros(2))
    assert wide > 1e6  # the quartiles lie in the lump, and the deviation is the outlier's
    made = density(values, np.ones(1000), grid, wide)
    assert np.isfinite(made).all()
    constant = density(np.zeros(50), np.ones(50), grid, 0.0)
    assert constant.sum() * (grid[1] - grid[0]) == pytest.approx(1.0, rel=1e-4)
    assert (constant > 0.01 * constant.max()).sum() < 9


def test_figures_show_the_shares_and_densities_of_every_kind() -> None:
    survey, dataset = survey_of_kinds()
    found = findings(survey, dataset)
    weight = survey.confidential.sampling_weight
    assert weight is not None
    panels = [1, 2, 1, 1, 2]
    for column, outcome in enumerate(KINDS):
        figure = outcome_figure(found, column)
        assert figure.get_suptitle() == MARK
        assert len(figure.axes) == panels[column]
        if outcome.split is not None:  # one axis, round numbers on both sides of the split
            (left, right), axis = figure.axes[1].get_xlim(), figure.axes[1].xaxis
            ticks = dict(zip([t.get_text() for t in axis.get_ticklabels()], axis.get_ticklocs(),
                             strict=True))  # fmt: skip
            assert left < -1.0 < 1.0 < right
            assert ticks["0"] == 0.0
            assert ticks["5k"] == -ticks["-5k"] == pytest.approx(2.0 * (6.0**0.5 - 1.0))
        if not outcome.is_discrete:
            continue
        widths = np.array([bar.get_width() for bar in figure.axes[0].patches])  # type: ignore[attr-defined]
        category = outcome.category(survey.confidential.outcome[:, column])
        for number in range(outcome.categories):
            mine = weight[category == number].sum() / weight.sum()
            theirs = outcome.category(dataset.outcome[:, column]) == number
            assert widths[number] == pytest.approx(mine)
            assert widths[number + outcome.categories] == pytest.approx(theirs.mean())
    figure = weight_figure(found)
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == ["Confidential sample", "Synthetic, as drawn", "Synthetic, released"]


def test_large_surveys_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    survey, dataset = survey_of_kinds()
    whole = shares_of(survey, dataset)
    assert chosen(400) == slice(None)
    assert with_fewer_records(dataset).outcome.shape == (400, 5)
    monkeypatch.setattr(adequacy, "MOST_RECORDS", 150)
    fewer = with_fewer_records(dataset)
    assert fewer.separate_pair
    records = chosen(400)
    assert np.unique(records).size == fewer.weight.size == 150
    np.testing.assert_array_equal(fewer.variance_weight, dataset.variance_weight[records])
    pair = SyntheticDataset(1, 1, dataset.outcome, dataset.weight, dataset.outcome, dataset.weight)
    assert not with_fewer_records(pair).separate_pair
    # The sample's own shares are of all records.
    for name, parts in shares_of(survey, fewer).items():
        assert [part.sample for part in parts] == [part.sample for part in whole[name]]
    outcome_figure(findings(survey, fewer), 1)
    weight_figure(findings(survey, fewer))
