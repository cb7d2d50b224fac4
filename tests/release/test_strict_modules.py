"""Releases whose outcomes are in modules. Truth: published files alone, from which everything is
made again; a release of one module by itself; the sample, where next to no noise is left."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.cli import main
from surveysynth.config.build import mechanism_of, model_of, read_survey
from surveysynth.config.spec import load_spec
from surveysynth.release.pipeline import release
from surveysynth.release.rebuild import rebuild
from surveysynth.release.strict_check import check_strict
from tests.release.test_strict_kinds import first_chains_kept, frame_of
from tests.surveys import spec_text, write_survey

pytestmark = pytest.mark.xdist_group("strict modules")  # what its tests share is made once

MODULES = 'modules = [["benefit", "sector"], ["employed", "pay"]]'
OUTCOMES = """[outcomes.benefit]
kind = "semicontinuous"
spikes = [0]
centre = 3000
spread = 0.6
[outcomes.employed]
kind = "binary"
[outcomes.sector]
kind = "categorical"
levels = ["public", "private", "none"]
[outcomes.pay]
range = [0, 100_000]
"""


def spec_in(folder: Path, n: int, privacy: str, plan: str = "", tables: str = "") -> Path:
    rng = np.random.default_rng(4)
    frame = frame_of(n)
    # Who has a job has less often a benefit, and is less often in no sector.
    frame["benefit"] = np.where((frame["employed"] == 1) & (rng.random(n) < 0.6), 0.0,
                                frame["benefit"])  # fmt: skip
    none = (frame["benefit"] > 0.0) & (rng.random(n) < 0.6)
    frame["sector"] = np.where(none, "none", frame["sector"])
    frame = frame.assign(pay=np.exp(rng.normal(9.0, 0.5, n) + 0.3 * (frame["gender"] == "f")))
    text = spec_text(
        survey=f"population_size = {57 * n}\nstrata = 'gender'",
        synthesizer=f'outcome = ["benefit", "employed", "sector", "pay"]\n'
        f"predictors = 'gender'\n{plan}",
        privacy=f'mechanism = "noisy_statistics"\n{privacy}\n{MODULES}',
        tables=tables or "by = ['gender']\nstatistics = ['count', 'mean', 'share']",
        labels=OUTCOMES,
    )
    return write_survey(folder, frame, text)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small release with much noise."""
    folder = tmp_path_factory.mktemp("modules")
    plan = "chains = 16\ndraws = 20\nwarmup = 60"
    spec = spec_in(folder / "in", 300, "epsilon = 20\nm = 10\nreplicates_per_draw = 1", plan)
    with first_chains_kept():
        return release(spec, folder / "out", seed=3).out


def test_everything_is_made_again_from_what_is_published(made: Path, tmp_path: Path) -> None:
    again = rebuild(made / "release", tmp_path / "again")
    assert again.different == ()
    assert len(again.same) >= 4


def test_documents_say_what_is_in_which_module(made: Path) -> None:
    given: dict[str, Any] = json.loads((made / "release" / "privacy.json").read_text())
    whole = json.loads((made / "release" / "statistics.json").read_text())
    modules = given["settings"]["modules"]
    assert [each["outcomes"] for each in modules] == [["benefit", "sector"], ["employed", "pay"]]
    assert [each["columns"] for each in modules] == [2, 2]
    assert modules[0]["rho"] == modules[1]["rho"]
    statistics = whole["statistics"]["modules"]
    assert sum(each["rho"] for each in statistics) <= 0.9 * given["rho"] * (1 + 1e-12)
    # Two genders; spike or amount and three levels; two levels. Not all combinations of them.
    assert [len(each["counts"]) for each in statistics] == [2 * 2 * 3, 2 * 2]
    for name in ("README.md", "dossier.md"):
        text = (made / "release" / name).read_text(encoding="utf-8")
        assert "'benefit', 'sector'; 'employed', 'pay'" in text.replace("\\", "")
        assert "drawn independently of each other" in text
    assert "satisfy zero-concentrated" in (made / "release" / "README.md").read_text()


def test_outcomes_of_different_modules_are_independent_and_of_one_are_not(made: Path) -> None:
    files = sorted((made / "release" / "microdata").glob("*.csv"))
    every = pd.concat([pd.read_csv(each) for each in files])
    assert set(every.columns) >= {"benefit", "employed", "sector", "pay", "weight"}
    spike = (every["benefit"] == 0.0).astype(float)

    def together(other: pd.Series) -> float:
        """How two answers go together within cells, as a correlation."""
        pair = pd.DataFrame({"one": spike, "other": other.astype(float)})
        pair -= pair.groupby(every["gender"]).transform("mean")
        return float(np.corrcoef(pair["one"], pair["other"])[0, 1])

    assert abs(together(every["employed"])) < 0.06
    assert together(every["sector"] == "none") < -0.2


@pytest.mark.slow
def test_without_noise_every_table_is_the_samples(tmp_path: Path) -> None:
    """An epsilon of a million: what is left is the error of a finite number of datasets."""
    spec = spec_in(tmp_path / "in", 1500, "epsilon = 1e6\nm = 20\nreplicates_per_draw = 10")
    out = tmp_path / "out"
    assert main(["release", str(spec), "--out", str(out), "--seed", "5"]) == 0
    assert main(["adequacy", str(out)]) == 0
    rows = pd.read_csv(out / "confidential" / "adequacy.csv")
    off = ((rows["published"] - rows["sample"]) / rows["sample_se"])[rows["difference"].notna()]
    assert len(off) == 29
    assert np.sqrt(np.mean(off**2)) < 0.6
    # Errors are those of the sample.
    ratio = (rows["published_se"] / rows["sample_se"]).dropna()
    assert 0.8 < np.median(ratio) < 1.3


def test_check_refuses_what_a_release_would(tmp_path: Path) -> None:
    text = """[survey]
data = "survey.csv"
weight = "weight"
population_size = 30000
[synthesizer]
covariance_by = []
[outcomes.salary]
range = [1000, 1_000_000]
[outcomes.benefit]
range = [0, 100_000]
[privacy]
mechanism = "noisy_statistics"
epsilon = 5
modules = [["salary"], ["benefit"]]
[tables]
by = ["gender"]
statistics = ["mean"]
"""
    write_survey(tmp_path / "in", frame_of(300), text)
    # One covariance for all groups is no other form of the model.
    lines = check_strict(load_spec(tmp_path / "in" / "spec.toml"))
    assert sum(str(each).startswith("Module of") for each in lines) == 2


def test_check_shows_every_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_in(tmp_path / "in", 300, "epsilon = 3")
    assert main(["check", str(spec), "--quick", "--verbose"]) == 0
    shown = capsys.readouterr().out
    assert "Module of 'benefit', 'sector', with an equal share" in shown
    assert "Noise: on 2 x 6 numbers of records" in shown
    assert "Noise: on 2 x 2 numbers of records" in shown
    bad = "by = ['gender', 'employed']\nstatistics = ['share']"
    spec = spec_in(tmp_path / "bad", 300, "epsilon = 3", tables=bad)
    assert main(["check", str(spec), "--quick"]) == 2
    assert "different lists of privacy.modules" in capsys.readouterr().err
    assert {each.name for each in (tmp_path / "bad").iterdir()} == {"survey.csv", "spec.toml"}


class Kept:
    """Keeps noise as a folder does: as text."""

    def __init__(self) -> None:
        self.text: str | None = None

    def earlier(self) -> dict[str, Any] | None:
        return None if self.text is None else json.loads(self.text)

    def keep(self, statistics: Any) -> None:
        self.text = json.dumps(statistics)


def test_a_run_goes_on_from_the_noise_of_all_modules(tmp_path: Path) -> None:
    plan = "chains = 16\ndraws = 20\nwarmup = 20"
    spec = load_spec(spec_in(tmp_path / "in", 200, "epsilon = 20\nm = 10", plan))
    survey, mechanism = read_survey(spec), mechanism_of(spec)
    model, keeper = model_of(spec).of(survey.design), Kept()
    with first_chains_kept():
        first, again, other = (
            mechanism.run(
                model, survey.design, survey.confidential, np.random.default_rng(1), keeper=each
            ).published["statistics.json"]
            for each in (keeper, keeper, None)
        )
    assert json.dumps(first["statistics"]) == json.dumps(again["statistics"])
    assert first["learned"] == again["learned"]
    assert json.dumps(other["statistics"]) != json.dumps(first["statistics"])
