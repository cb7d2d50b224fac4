"""Truth: estimates over repeated two-stage samples, whose spread is the variance that an SE claims;
one-stage variances of the same samples, which are too small."""

from functools import lru_cache

import numpy as np
import pytest

from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.taylor import SampleDesign, estimate_domains
from surveysynth.evaluation.studies import batches
from surveysynth.evaluation.studies.batches import run_task
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task, two_stage_study
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.measures import measure_cells
from surveysynth.evaluation.studies.population import superpopulation
from surveysynth.survey.survey import Survey

TWO_STAGE = {"kind": "two_stage", "allocation": "equal", "clusters": "size", "within": "pps"}


@lru_cache
def population():
    return superpopulation(
        np.random.default_rng(3), sizes=(1500,) * 4, clusters=30, psu_variance=(0.04, 0.04),
        cluster_spread=0.3, informativeness=0.5, spread=0.3, size_spread=0.3,
    )  # fmt: skip


def cluster_study(cls=CoverageStudy, design=TWO_STAGE, **changes):
    options = {"methods": ("sample",), "replicates": 60, "batch": 60, **changes}
    return cls(population(), SamplingDesign(n=400, per_cluster=10, **design), **options)


def test_variances_by_unit_are_those_of_repeated_samples():
    study = cluster_study(replicates=100, batch=100)
    made = run_task(study, Task(0, "noise")).replicates
    cells = measure_cells(made, study.truth())
    frame = cells.join(study.domains(population().frame).table, on="row")
    frame = frame[(frame["statistic"] == "mean") | (frame["stratum"] != "All")]
    by_unit = frame["se"] / frame["sd"]
    whole = frame["is_margin"] & (frame["stratum"] == "All")
    assert 0.9 < by_unit.median() < 1.1
    assert abs(frame["bias"] / frame["truth"]).max() < 0.06
    assert frame["coverage"][whole].min() > 0.87
    assert frame["coverage"].mean() > 0.9
    # The same samples as if each record had been drawn by itself.
    errors = []
    for sample in range(15):
        survey = study.survey(sample)
        domains = study.domains(survey.design.frame)
        alone = SampleDesign(survey.design.strata)
        errors.append([
            estimate_domains(
                domains, alone, weight=survey.confidential.sampling_weight,
                outcome=survey.confidential.outcome[:, 0], statistic="mean", linearisation="ratio",
                population_size=survey.design.population_size,
            ).variance
        ])  # fmt: skip
    means = frame[frame["statistic"] == "mean"]
    one_stage = np.sqrt(np.mean(errors, axis=0)[0])[means["row"]] / means["sd"]
    assert one_stage.median() < 0.75


def test_a_declared_design_effect_is_of_synthetic_data_alone():
    plain, declared = cluster_study(), cluster_study(design_effect=4.0)
    assert plain.survey(0).design.design_effect is None
    design = declared.survey(0).design
    assert design.design_effect == 4.0
    assert SampleDesign.from_public(design).degrees_of_freedom == 40 - 4
    few = [
        run_task(
            cluster_study(design_effect=effect, replicates=2, batch=2), Task(0, "noise")
        ).replicates
        for effect in (None, 4.0)
    ]
    np.testing.assert_array_equal(few[0]["se"], few[1]["se"])
    assert (few[0]["df"] == 36).all()


def test_the_setting_of_two_stages():
    study = two_stage_study(seed=2, methods=("sample",))
    survey = study.survey(0)
    design = survey.design
    assert np.bincount(design.strata).tolist() == [100] * 10
    assert np.bincount(design.psu).tolist() == [20] * 50
    frame = study.population.frame
    cell = [frame["stratum"], frame["group"]]
    for name, inside in (("outcome", 0.16), ("size", 0.2)):
        log = np.log(frame[name])
        residual = log - log.groupby(cell).transform("mean")
        within = residual.groupby(frame["psu"]).var().mean()
        between = residual.groupby(frame["psu"]).mean().var() - within / 100
        assert within == pytest.approx(inside, rel=0.03)
        assert between == pytest.approx(0.02, rel=0.2)
    weight = np.log(survey.confidential.sampling_weight)
    assert np.corrcoef(weight, np.log(survey.confidential.outcome[:, 0]))[0, 1] < -0.2


class _Uneven(CoverageStudy):
    """Every second sample has lost a unit."""

    def survey(self, sample):
        whole = super().survey(sample)
        if sample % 2 == 0:
            return whole
        frame = whole.design.frame.assign(
            outcome=whole.confidential.outcome[:, 0], weight=whole.confidential.sampling_weight
        )
        kept = frame[whole.design.psu != 0].reset_index(drop=True)
        return Survey.from_frame(
            kept, outcome="outcome", weight="weight", by=("stratum", "group"), strata="stratum",
            psu="psu", design_effect=self.design_effect, population_size=6000,
        )  # fmt: skip


def test_batches_are_of_one_number_of_records(monkeypatch):
    groups = []

    def run_batch(model, databases, settings, rng):
        groups.append([each.n for each in databases])
        return [RefusedError("none today") for _ in databases]

    monkeypatch.setattr(batches, "run_batch", run_batch)
    study = cluster_study(
        _Uneven, methods=("fbs_paper",), replicates=5, batch=5, design_effect=1.5
    )
    result = run_task(study, Task(0, "fbs"))
    assert groups == [[400] * 3, [390] * 2]
    assert sorted(result.refusals["sample"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"design": {"kind": "two_stage"}}, "equal weights under the design 'two_stage'"),
        ({"design": {"kind": "srs"}}, "equal weights under the design 'srs'"),
        ({"design": {**TWO_STAGE, "within": "srs"}}, "records of a cluster have equal weights"),
        ({"design": {"kind": "pps"}, "design_effect": 2.0}, "needs a two-stage design"),
        ({"methods": ("poisson",)}, "'poisson' has no effects of clusters"),
    ],
)
def test_what_cannot_be_fitted_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        cluster_study(**changes)
    allowed = {"methods": ("poisson",), "design": {**TWO_STAGE, "within": "srs"}}
    assert cluster_study(design_effect=2.0, **allowed).design_effect == 2.0
