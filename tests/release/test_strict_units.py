"""Releases by noisy statistics of outcomes of several kinds in two-stage samples.

Truth: the published files alone, from which everything is made again; planted units whose records
are alike, against the same records in units that are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.cli import main
from surveysynth.config.build import engine_of, model_of, noisy_settings_of, read_survey
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.level_squares import SHARE
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationStatistics,
)
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    location_design,
    release_statistics,
    unit_sizes,
)
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.release.pipeline import rebuild, release
from tests.release.test_strict_kinds import (
    AMOUNT,
    KINDS,
    PLAN,
    STRICT,
    MakeSpec,
    first_chains_kept,
    frame_of,
    shared,
    spec_of,
)
from tests.surveys import spec_text, write_survey

pytestmark = pytest.mark.xdist_group("strict units")
UNITS, SURVEY = 30, "population_size = 30000\nstrata = 'gender'\npsu = 'school'"


QUICK = ("--quick", "--verbose")


def clustered(seed: int = 3) -> pd.DataFrame:
    """Schools within a gender, whose people work or do not, and have a benefit, together."""
    frame, rng = frame_of(600), np.random.default_rng(seed)
    place = frame.groupby("gender").cumcount().to_numpy() % (UNITS // 2)
    frame["school"] = frame["gender"] + [f"{each:02}" for each in place]
    code = frame["school"].astype("category").cat.codes.to_numpy()
    works, has = (rng.normal(0.0, 2.5, UNITS)[code] for _ in range(2))
    frame["employed"] = (rng.random(600) < 1.0 / (1.0 + np.exp(-works))).astype(int)
    given = np.exp(rng.normal(8.0, 0.5, 600))
    frame["benefit"] = np.where(rng.random(600) < 1.0 / (1.0 + np.exp(-has)), given, 0.0)
    return frame


def text_of(survey: str = SURVEY) -> str:
    return spec_text(
        survey=survey,
        synthesizer=f'outcome = ["benefit", "employed", "sector"]\n{PLAN}',
        privacy=STRICT,
        tables="by = ['gender']\nstatistics = ['count', 'mean', 'share']",
        labels=KINDS,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one release."""
    folder = tmp_path_factory.mktemp("units")
    spec = write_survey(folder / "in", clustered(), text_of())
    with first_chains_kept():
        return Path(release(spec, folder / "out", seed=2).out) / "release"


def test_it_is_made_again_from_what_is_published(made: Path, tmp_path: Path) -> None:
    again = rebuild(made, tmp_path / "again")
    assert again.different == ()
    assert len(again.same) >= 3


def test_what_is_published_of_units_is_stated(made: Path) -> None:
    given: dict[str, Any] = shared(made / "statistics.json")["statistics"]
    statistics = LocationStatistics.from_dict(given)
    assert statistics.to_dict() == given
    units = given["units"]
    # A benefit and the weight; a spike or an amount, two levels and three. Nothing by unit.
    assert np.shape(units["products"]) == (9, 9)
    assert not any(np.shape(value)[:1] == (UNITS,) for value in units.values())
    record = shared(made / "privacy.json")
    # A tenth is for the transform of the weight, which is learned.
    spent = units["rho"] + given["levels"]["rho"] + given["rho"]
    assert spent == pytest.approx(0.9 * record["rho"], rel=1e-9)
    assert 1 / 64 <= units["rho"] / record["rho"] <= 1 / 2
    words = " ".join((made / "dossier.md").read_text(encoding="utf-8").split())
    assert "one matrix for all primary sampling units (school)" in words
    assert f"It cost rho = {units['rho']:.6g} of the whole" in words
    assert record["settings"]["clusters"]["effects"] is True


@pytest.mark.slow
def test_standard_errors_are_those_of_units_that_differ(tmp_path: Path) -> None:
    """Twenty records a unit, an intraclass correlation of .65: a design effect of about 13. Records
    in units at random have none."""
    shuffled = clustered()
    order = np.random.default_rng(5).permutation(len(shuffled))
    school = np.empty(len(shuffled), dtype=object)
    for gender in ("f", "m"):
        own = np.flatnonzero(shuffled["gender"] == gender)
        school[own] = shuffled["school"].to_numpy()[own[np.argsort(order[own])]]
    ratios = []
    for seed in (2, 3, 4):
        made = []
        for number, frame in enumerate((clustered(), shuffled.assign(school=school))):
            place = tmp_path / f"{number} {seed}"
            place.mkdir()
            spec = write_survey(place / "in", frame, text_of())
            made.append(Path(release(spec, place / "out", seed=seed).out) / "release")
        errors = [[_share_errors(each, name) for name in ("employed", "benefit")] for each in made]
        ratios.append(np.divide(*errors))
    assert np.median(ratios, axis=0).min() > 1.9


@pytest.mark.slow
def test_missing_answers_are_filled_in_units(tmp_path: Path) -> None:
    """Shares of who works, of whom a seventh gave no answer at random, are those of all."""
    frame = clustered()
    lost = np.random.default_rng(4).random(len(frame)) < 1 / 7
    given = frame.assign(employed=frame["employed"].where(~lost))
    spec = write_survey(tmp_path / "in", given, text_of(f"{SURVEY}\nmissing = 'model'"))
    made = Path(release(spec, tmp_path / "out", seed=2).out) / "release"
    assert rebuild(made, tmp_path / "again").different == ()
    table = pd.read_csv(made / "tables" / "shares.csv")
    works = table[(table["outcome"] == "employed") & (table["level"].astype(str) == "1")]
    assert not works.empty
    assert set(table.loc[table["outcome"] == "employed", "level"].astype(str)) == {"0", "1"}
    for row in works.itertuples():
        own = frame if row.is_margin else frame[frame["gender"] == row.gender]
        share = np.average(own["employed"], weights=own["weight"])
        assert abs(row.estimate - share) < 4.0 * row.se


def _share_errors(folder: Path, outcome: str) -> float:
    """The standard error of a share of all records."""
    table = pd.read_csv(folder / "tables" / "shares.csv")
    return float(table[(table["outcome"] == outcome) & table["is_margin"]]["se"].iloc[0])


def test_check_tells_what_the_noise_leaves_to_see(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, given = clustered(), {"survey": SURVEY}
    privacy = STRICT.replace("20.0", "60.0")
    assert main(["check", str(spec_of(make_spec, frame, **given, privacy=privacy)), *QUICK]) == 0
    said = capsys.readouterr().out
    assert "Products between 30 units (school) of 20 records on average" in said
    assert "hides intraclass correlations" not in said
    privacy = STRICT.replace("20.0", "8.0")
    assert main(["check", str(spec_of(make_spec, frame, **given, privacy=privacy)), *QUICK]) == 0
    assert "hides intraclass correlations" in capsys.readouterr().out


def test_a_share_of_the_budget_is_no_longer_declared(make_spec: MakeSpec) -> None:
    privacy = STRICT + "\npsu_share = 0.1\n"
    with pytest.raises(InputError, match=r"psu_share.*follows from their sizes"):
        load_spec(spec_of(make_spec, clustered(), survey=SURVEY, privacy=privacy))


@pytest.mark.parametrize("outcome", ["benefit", "salary"])
def test_shares_are_judged_by_the_noise_of_the_release(make_spec: MakeSpec, outcome: str) -> None:
    """A benefit that some lack has sums in one stage, a plain amount in two."""
    label = AMOUNT if outcome == "benefit" else "[outcomes.salary]\ncenter = 50000\nspread = 0.6\n"
    synthesizer = f'outcome = "{outcome}"\ncovariance_by = ["gender"]\n{PLAN}'
    given = {"survey": SURVEY, "synthesizer": synthesizer, "labels": label}
    tables = "by = ['gender']\nstatistics = ['count', 'mean']"
    spec = load_spec(spec_of(make_spec, clustered(), tables=tables, **given))
    survey, settings = read_survey(spec), noisy_settings_of(spec)
    design, model = survey.design, engine_of(spec, model_of(spec)).of(survey.design)
    assert isinstance(model, GeneralLocation)
    public = location_design(model, design, settings)
    assert (public.centring is None) == (outcome == "benefit")
    released = release_statistics(model, design, survey.confidential, settings)
    assert isinstance(released, LocationStatistics)
    sizes = unit_sizes(public, design, settings)
    share = sizes.best_share()
    left = sizes.of_sums / (1.0 - share)
    if released.levels is not None:
        left /= 1.0 - SHARE
    assert left == pytest.approx(released.pooled_sigma**2, rel=1e-6)
    assert released.units is not None
    assert sizes.of_products**2 / share == pytest.approx(released.units.sd**2, rel=1e-6)


def test_a_formula_without_strata_has_fewer_cells(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = clustered()
    frame["region"] = frame["school"].str[1:].astype(int) % 5
    outcome = 'outcome = ["benefit", "employed", "sector"]'
    own = f"{outcome}\n{PLAN}"  # whose predictors are the gender
    given = {"survey": SURVEY.replace("'gender'", "'region'"), "privacy": STRICT}
    path = spec_of(make_spec, frame, **given, synthesizer=own)
    assert main(["check", str(path), *QUICK]) == 0
    assert "Noise: on 2 x " in capsys.readouterr().out
    declared = given | {"survey": given["survey"] + "\ndesign_effect = 2"}
    assert main(["check", str(spec_of(make_spec, frame, **declared, synthesizer=own)), *QUICK]) != 0
    assert "must contain strata" in capsys.readouterr().err


def test_too_few_units_are_refused(make_spec: MakeSpec, tmp_path: Path) -> None:
    few = clustered().assign(school=lambda each: each["gender"] + each["school"].str[-1:])
    few["school"] = few["gender"] + (few.index % 3).astype(str)
    spec = spec_of(make_spec, few, survey=SURVEY)
    with pytest.raises(InputError, match="design_effect"):
        release(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fbp_releases_units_and_one_weight_a_cell(make_spec: MakeSpec, tmp_path: Path) -> None:
    frame = clustered()
    one = {
        "synthesizer": f"outcome = 'employed'\nmodel = 'fbp'\n{PLAN}",
        "labels": '[outcomes.employed]\nkind = "binary"\n',
        "tables": "by = ['gender']\nstatistics = ['count', 'share']",
    }
    out = tmp_path / "out"
    release(spec_of(make_spec, frame, survey=SURVEY, **one), out)
    # Units are those of the survey; weights are constant in a cell.
    data = pd.read_csv(out / "release" / "microdata" / "draw_01_rep_01.csv", dtype={"school": str})
    assert sorted(data["school"]) == sorted(frame["school"])
    spread = data.groupby("gender")["weight"].agg(["min", "max"])
    np.testing.assert_allclose(spread["min"], spread["max"], rtol=1e-5)
    shares = pd.read_csv(out / "release" / "tables" / "shares.csv")
    assert shares["df_design"].max() == UNITS - 2
