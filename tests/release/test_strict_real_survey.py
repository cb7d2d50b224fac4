"""Noisy statistics on a real survey, as its user would: income on a Yeo-Johnson scale made by hand.

Truth: the confidential sample's own estimates and standard errors, by unit and as one-stage.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import Statistic
from surveysynth.estimation.taylor import DomainEstimates, estimate_domains
from surveysynth.release.pipeline import release
from surveysynth.survey.survey import Survey

REAL = Path(__file__).parents[3] / "shared" / "data" / "ce2015q3.csv"
HOUSEHOLDS = 129e6
#: How far an estimate may be from the sample's, in the sample's standard errors: any row, median.
FARTHEST, MIDDLE = 3.0, 1.2
SPEC = """spec_version = 1
[survey]
data = "ce.csv"
weight = "weight"
population_size = {size}
missing = "drop"
{psu}
[synthesizer]
outcome = "income_scaled"
[privacy]
mechanism = "noisy_statistics"
epsilon = 3.6
delta = 1e-6
[outcomes.income_scaled]
transform = "identity"
center = 2.5
spread = 1.8
[tables]
by = ["region", "sex"]
"""


def yeo_johnson(y: FloatArray, power: float) -> FloatArray:
    up, down, other = np.maximum(y, 0.0) + 1.0, 1.0 - np.minimum(y, 0.0), 2.0 - power
    return np.where(y >= 0, (up**power - 1.0) / power, (1.0 - down**other) / other)


def of_sample(
    survey: Survey, statistic: Statistic, *, by_unit: bool = True, weighted: bool = True
) -> DomainEstimates:
    """Every cell and margin of the confidential sample."""
    design, weight = survey.design, survey.confidential.sampling_weight
    assert weight is not None
    sample = SampleDesign.from_public(design)
    return estimate_domains(
        build_domains(design.frame, design.by, design.levels),
        sample if by_unit else sample.one_stage,
        weight=weight if weighted else np.ones_like(weight),
        outcome=survey.confidential.outcome[:, 0], statistic=statistic, linearisation="ratio",
        population_size=design.population_size,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="the real survey is not on this machine")
@pytest.mark.parametrize("psu", ["", 'psu = "psu"'], ids=["one stage", "clusters"])
def test_a_real_survey_is_met_within_its_sampling_errors(
    tmp_path: Path, psu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(REAL, dtype={"region": str, "sex": str, "psu": str})
    frame["income_scaled"] = yeo_johnson(frame["income"].to_numpy() / 1e4, 0.4)
    frame.to_csv(tmp_path / "ce.csv", index=False)
    size = round(HOUSEHOLDS * frame["region"].notna().sum() / len(frame))
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(size=size, psu=psu), encoding="utf-8")
    out = release(spec, tmp_path / "out", seed=1).out
    record = json.loads((out / "release" / "privacy.json").read_text())
    assert record["rho"] == pytest.approx(0.257, abs=5e-4)
    survey = read_survey(load_spec(spec))
    assert survey.design.n == 6206
    for statistic, name in (("count", "counts"), ("mean", "means")):
        table = pd.read_csv(out / "release" / "tables" / f"{name}.csv")
        truth = of_sample(survey, statistic)
        se = np.sqrt(truth.variance)
        shown = se > 1e-6 * np.abs(truth.estimate)  # the whole count is known
        z = np.abs((table["estimate"] - truth.estimate) / se)[shown]
        ratio = (table["se"] / se)[shown]
        with capsys.disabled():
            print(
                f"\n{name} {psu}: |z| median {z.median():.2f}, largest {z.max():.2f}; SE over the "
                f"sample's {ratio.median():.2f} [{ratio.min():.2f}, {ratio.max():.2f}]"
            )
        assert z.max() < FARTHEST
        assert z.median() < MIDDLE
        assert 0.75 < ratio.median() < 1.5
        if psu:
            one_stage = np.sqrt(of_sample(survey, statistic, by_unit=False).variance)[shown]
            least = {"count": 2.5, "mean": 1.2}[statistic]  # weights vary most between units
            assert (table["se"][shown] / one_stage).median() > least
    if not psu:  # forgotten weights would be seen
        truth, wrong = (of_sample(survey, "count", weighted=each) for each in (True, False))
        shown = truth.variance > 0
        z = (wrong.estimate - truth.estimate)[shown] / np.sqrt(truth.variance[shown])
        assert np.abs(z).max() > FARTHEST
