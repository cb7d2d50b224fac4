"""Missing answers of a release. Truth: complete answers of samples whose answers were left out at
random; files of two surveys that differ in one missing answer, from the same noisy numbers."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.api.commands import adequacy
from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.inference import synthesis
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics
from surveysynth.release.pipeline import release
from tests.long_runs.missing_study import RULES, covered
from tests.surveys import MakeSpec, small_survey

STRICT = 'mechanism = "noisy_statistics"\nepsilon = 20.0\nm = 10\nreplicates_per_draw = 1'
PLAN = "chains = 8\ndraws = 60\nwarmup = 60\npredictors = 'gender'\ninference = 'debiased'"
SALARY = "[outcomes.salary]\ncenter = 22000\nspread = 0.45"
SURVEY = 'population_size = 30000\nstrata = "gender"\nmissing = "model"'


def spec_of(make_spec: MakeSpec, frame: pd.DataFrame, survey: str = SURVEY) -> Path:
    return make_spec(
        frame, survey=survey, privacy=STRICT, synthesizer=PLAN, labels=SALARY,
        tables="by = ['gender']",
    )  # fmt: skip


def holes(*records: int) -> pd.DataFrame:
    frame = small_survey()
    frame.loc[list(records), "salary"] = np.nan
    return frame


def test_one_missing_answer_moves_nothing_but_noisy_numbers(
    make_spec: MakeSpec, tmp_path: Path, stand_in_posterior: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second release gets the noisy numbers of the first: every file is the same then."""
    right, kept, exact = survey_statistics.release_statistics, [], []

    def same(*given, **named):
        exact.append(right(*given, **named))
        kept[:] = kept or [exact[0]]
        return kept[0]

    monkeypatch.setattr(survey_statistics, "release_statistics", same)
    trees = []
    for name, frame in (("one", holes(3, 9)), ("two", holes(3, 9, 30))):
        out = release(spec_of(make_spec, frame), tmp_path / name, seed=4).out / "release"
        files = sorted(path for path in out.rglob("*") if path.is_file())
        trees.append({str(path.relative_to(out)): path.read_bytes() for path in files})
        data = pd.read_csv(next((out / "microdata").glob("*.csv")))
        assert len(data) == len(frame)
        assert data.notna().all(axis=None)
    assert trees[0] == trees[1]
    assert not np.array_equal(exact[0].counts, exact[1].counts)


def test_statement_says_what_is_protected(
    make_spec: MakeSpec, tmp_path: Path, stand_in_posterior: None
) -> None:
    texts = {}
    for rule in ("model", "drop"):
        path = spec_of(make_spec, holes(3, 9), SURVEY.replace('"model"', f'"{rule}"'))
        out = release(path, tmp_path / rule, seed=4).out / "release"
        texts[rule] = json.dumps(json.loads((out / "privacy.json").read_text()))
    assert "A missing answer is an answer like any other" in texts["model"]
    assert "which values are missing stay the same" not in texts["model"]
    assert '"records": 240' in texts["model"]
    assert "Whether a record was complete is not protected" in texts["drop"]
    assert '"records": 238' in texts["drop"]


def test_only_noisy_statistics_count_missing_answers(make_spec: MakeSpec) -> None:
    with pytest.raises(InputError, match=r"survey.missing: .*set mechanism = 'noisy_st"):
        load_spec(make_spec(holes(3), survey=SURVEY))
    weightless = holes(3)
    weightless.loc[5, "weight"] = np.nan
    with pytest.raises(InputError, match="blank or missing cells in 'weight': 1 record"):
        read_survey(load_spec(spec_of(make_spec, weightless)))


@pytest.mark.slow
def test_intervals_cover_as_with_complete_answers() -> None:
    """A few samples of the study, which complete cases fail."""
    runs = [covered(1000 + seed) for seed in range(5)]
    hits = {rule: np.mean([run[rule][0] for run in runs]) for rule in RULES}
    assert hits["model"] > 0.8
    assert hits["complete cases"] < 0.75


def test_the_comparison_with_the_sample_knows_which_answers_were_missing(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the answers: sums of completed datasets would have too many of each."""
    frame = small_survey(600)
    rng = np.random.default_rng(5)
    frame["sick"] = np.where(rng.random(600) < 0.1, None, np.where(rng.random(600) < 0.2, "y", "n"))
    spec = make_spec(
        frame, survey=SURVEY, privacy=STRICT, tables="by = ['gender']\nstatistics = ['share']",
        synthesizer=PLAN + "\noutcome = 'sick'",
        labels="[outcomes.sick]\nkind = 'binary'\nlevels = ['n', 'y']",
    )  # fmt: skip
    out = release(spec, tmp_path / "out", seed=4).out

    def farthest() -> float:
        adequacy(out)
        rows = pd.read_csv(out / "confidential" / "adequacy.csv")
        return float(rows["difference"].abs().max())

    assert farthest() < 2.6
    simulated = synthesis._simulated
    monkeypatch.setattr(synthesis, "_simulated", lambda *given: (simulated(*given)[0], None))
    assert farthest() > 5.0
