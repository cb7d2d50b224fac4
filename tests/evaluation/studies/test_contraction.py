"""Truth: fits of single databases by the mechanism's parts, moments of simulated counts, standard
errors of known spreads; the committed result of ``python -m tests.long_runs.contraction_study``."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior.fit import likelihood_extremes
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from tests.long_runs.contraction import (
    SIZES,
    SOURCES,
    Capped,
    contraction,
    sd_with_error,
    summarise_contraction,
)

GOLDEN = Path(__file__).parents[2] / "golden"
BY_NAME = {source.name: source for source in SOURCES}
PLAN = SamplingPlan(4, 150, 150)


@pytest.fixture(scope="module")
def deltas():
    return contraction(SOURCES[0], (300, 600), databases=4, seed=3, plan=PLAN)


def extremes(source, n, number, weights):
    """max |log-likelihood| by record of a fit under weights, by the model alone."""
    survey = source.draw(n, 3, number)
    model = get_model(source.model)
    records = model.records(survey.design, survey.confidential)
    theta = model.sample(model.compress(records, weights), PLAN, np.random.default_rng(9))
    flat = {name: values.reshape(-1, *values.shape[3:]) for name, values in theta.items()}
    return likelihood_extremes(model.log_lik_blocks(flat, records), n).lipschitz


def test_deltas_are_those_of_fits_under_the_rules(deltas):
    source = SOURCES[0]
    assert list(deltas.columns) == ["source", "n", "scheme", "database", "delta", "least"]
    assert len(deltas) == 2 * 3 * 4
    found = deltas[(deltas["n"] == 600) & (deltas["database"] == 2)].set_index("scheme")["delta"]
    f = extremes(source, 600, 2, np.ones(600))
    # Other random numbers: extremes over draws differ by a little.
    assert found["unweighted"] == pytest.approx(f.max(), rel=0.05)
    linear = 1 - (f - f.min()) / np.ptp(f)
    expected = (linear * extremes(source, 600, 2, linear)).max()
    assert found["linear"] == pytest.approx(expected, rel=0.05)
    capped = np.minimum(1, source.cap / f)
    expected = (capped * extremes(source, 600, 2, capped)).max()
    assert found["capped"] == pytest.approx(expected, rel=0.02)
    assert abs(found["linear"] - found["capped"]) > 0.02


def test_a_study_is_repeatable_and_databases_differ(deltas):
    again = contraction(SOURCES[0], (600,), databases=4, seed=3, plan=PLAN)
    part = deltas[deltas["n"] == 600].reset_index(drop=True)
    pd.testing.assert_frame_equal(again, part)
    assert part[part["scheme"] == "unweighted"]["delta"].nunique() == 4
    with pytest.raises(InputError, match="at least 2"):
        contraction(SOURCES[0], databases=1)


def test_sources_are_what_they_are_called():
    poisson = BY_NAME["Poisson(100)"].draw(20_000, 1, 0).confidential.outcome[:, 0]
    assert (poisson.mean(), poisson.var()) == pytest.approx((100, 100), rel=0.05)
    name = "0.2 NB(100, 5) + 0.8 NB(100, 20)"
    mixture = BY_NAME[name].draw(20_000, 1, 0).confidential.outcome[:, 0]
    variance = 100 + 0.2 * 100**2 / 5 + 0.8 * 100**2 / 20
    assert (mixture.mean(), mixture.var()) == pytest.approx((100, variance), rel=0.06)
    survey = BY_NAME["survey, FBS"].draw(500, 1, 0).design
    larger = BY_NAME["survey, FBP"].draw(3000, 1, 0).design
    assert survey.matrix.columns == larger.matrix.columns
    assert survey.matrix.n_columns == 9


def test_capped_weights_are_the_map_of_their_risks():
    from surveysynth.mechanisms.pseudo_posterior.risk import RiskData

    f = np.array([0.5, 1.8, 3.6, np.inf])
    data = RiskData(np.empty((4, 0)), f, pd.DataFrame(index=range(4)))
    np.testing.assert_allclose(1 - Capped(1.8).risks(data), [1, 1, 0.5, 0])


def test_error_of_a_spread_is_its_spread():
    rng = np.random.default_rng(1)
    for drawn in (rng.normal(size=(3000, 100)), rng.gumbel(size=(3000, 100))):
        sd, error = np.transpose([sd_with_error(values) for values in drawn])
        assert np.mean(error) == pytest.approx(np.std(sd), rel=0.12)
    # Of normal values the textbook's.
    normal = rng.normal(size=100_000)
    assert sd_with_error(normal)[1] == pytest.approx(1 / np.sqrt(2 * 100_000), rel=0.03)


@pytest.fixture(scope="module")
def golden():
    return pd.read_csv(GOLDEN / "contraction.csv")


def test_the_committed_summary_is_of_the_committed_deltas(golden):
    every = pd.read_csv(GOLDEN / "contraction_deltas.csv")
    made = summarise_contraction(every).sort_values(["source", "scheme", "n"]).round(5)
    kept = golden.sort_values(["source", "scheme", "n"])
    pd.testing.assert_frame_equal(
        made.reset_index(drop=True), kept.reset_index(drop=True), atol=1.1e-5
    )
    assert set(json.loads((GOLDEN / "contraction.json").read_text())) == set(BY_NAME)
    assert set(every["n"]) == set(SIZES)
    assert (golden.groupby("source")["databases"].nunique() == 1).all()
    assert golden["databases"].min() >= 25


@pytest.mark.parametrize("source", list(BY_NAME))
def test_delta_contracts_under_capped_weights(golden, source):
    """SD of Delta at n = 500 to 20,000: it falls from each n to the next, and over all of them by
    about the root of 40, beyond Monte Carlo error."""
    capped = golden[(golden["source"] == source) & (golden["scheme"] == "capped")]
    capped = capped.set_index("n")
    assert list(capped.index) == list(SIZES)
    assert capped["sd"].is_monotonic_decreasing
    first, last = capped.iloc[0], capped.iloc[-1]
    assert first["sd"] - last["sd"] > 4 * np.hypot(first["sd_mcse"], last["sd_mcse"])
    slope = np.polyfit(np.log(capped.index), np.log(capped["sd"]), 1)[0]
    assert -0.8 < slope < -0.3


@pytest.mark.parametrize("source", [each.name for each in SOURCES[:2]])
@pytest.mark.parametrize("scheme", ["unweighted", "linear"])
def test_the_largest_record_of_counts_does_not_contract(golden, source, scheme):
    """The spread of a largest value stays; with more records it is larger."""
    part = golden[(golden["source"] == source) & (golden["scheme"] == scheme)].set_index("n")
    first, last = part.iloc[0], part.iloc[-1]
    rate = np.sqrt(SIZES[0] / SIZES[-1])
    assert last["sd"] - 4 * last["sd_mcse"] > rate * first["sd"]
    assert last["mean"] > first["mean"] + 3 * np.hypot(first["sd"], last["sd"]) / np.sqrt(25)
