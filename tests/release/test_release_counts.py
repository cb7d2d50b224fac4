"""A release that takes the counts of an earlier one of the same sample (strict 7).

Truth: weights of published microdata, added up by pandas; the same release without those counts;
costs added by hand; databases that differ in one record, for the sums under noise."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.release.check import check_strict
from surveysynth.release.ledger import read_ledger
from surveysynth.release.pipeline import rebuild, release
from surveysynth.release.reader import ReleaseCounts
from tests.audit.cases import specified_case
from tests.audit.neighbours import changes_for
from tests.audit.noise import noise_lines
from tests.release.test_strict_kinds import first_chains_kept
from tests.surveys import small_survey, spec_text, write_survey

pytestmark = pytest.mark.xdist_group("release counts")  # what its tests share is made once

SURVEY = 'id = "counted"\npopulation_size = 30000\npsu = "school"\ndesign_effect = 1.0\n'
PLAN = "chains = 16\ndraws = 20\nwarmup = 60\npredictors = 'field + gender'\n"
NOISY = 'mechanism = "noisy_statistics"\nm = 10\nreplicates_per_draw = 2\n'
TABLES = "by = ['field', 'gender']\nstatistics = ['count', '{}']"
SALARY = "[outcomes.salary]\nrange = [1000, 200_000]\n"
JOB = "[outcomes.employed]\nkind = 'binary'\n"
TAKES = 'weights = "release:../first"\n'


def frame_of(n: int = 956, weights: int = 3) -> pd.DataFrame:
    """Jobs go with weights; ``weights``: the seed of these."""
    frame = small_survey(n).assign(school=[f"s{i // 8}" for i in range(n)])
    frame["weight"] = small_survey(n, weights)["weight"].to_numpy()
    rng = np.random.default_rng(1)
    frame["employed"] = (rng.random(n) < np.where(frame["weight"] > 60, 0.9, 0.3)).astype(int)
    return frame


def spec_in(
    folder: Path, outcome: str, *, frame: pd.DataFrame | None = None, survey: str = "",
    privacy: str = "rho = 0.5", tables: str = "", labels: str = "", plan: str = PLAN,
) -> Path:  # fmt: skip
    tables = tables or TABLES.format("mean" if outcome == "salary" else "proportion")
    text = spec_text(
        survey=SURVEY + survey, synthesizer=f'outcome = "{outcome}"\n{plan}',
        privacy=f"{NOISY}{privacy}", tables=tables,
        labels=(SALARY if outcome == "salary" else JOB) + labels,
    )  # fmt: skip
    return write_survey(folder, frame_of() if frame is None else frame, text)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases of one survey, "first" and "later", and their ledger."""
    folder = tmp_path_factory.mktemp("counts")
    with first_chains_kept():
        for name, outcome, survey, rho in (
            ("first", "salary", "", 0.4), ("later", "employed", TAKES, 0.5),
        ):  # fmt: skip
            given = {"survey": survey, "privacy": f"rho = {rho}"}
            spec = spec_in(folder / f"{name}_in", outcome, **given)  # type: ignore[arg-type]
            release(spec, folder / name, ledger=folder / "ledger.jsonl")
    return folder


def microdata(folder: Path) -> dict[str, pd.DataFrame]:
    files = sorted((folder / "microdata").glob("*.csv"))
    return {each.name: pd.read_csv(each) for each in files}


def table(folder: Path, name: str = "counts") -> pd.DataFrame:
    found = pd.read_csv(folder / "release" / "tables" / f"{name}.csv")
    return found.set_index(["field", "gender"])


def test_every_cell_has_one_count(home: Path) -> None:
    first, later = table(home / "first"), table(home / "later")
    assert list(first.index) == list(later.index)
    assert len(first) == 12
    np.testing.assert_allclose(later["estimate"], first["estimate"], rtol=1e-10)
    ratio = later["se"] / first["se"]
    assert ratio[first["se"] > 0].between(0.8, 1.25).all()


def test_counts_are_equal_in_every_dataset(home: Path, tmp_path: Path) -> None:
    made = {}
    for name in ("first", "later"):
        rebuild(home / name, tmp_path / name, all_datasets=True)
        made[name] = microdata(tmp_path / name)
    assert list(made["first"]) == list(made["later"])
    assert len(made["first"]) == 20
    for name, one in made["first"].items():
        other = made["later"][name]
        for columns in (["field", "gender"], ["field"], ["gender"]):
            sums = [each.groupby(columns)["weight"].sum() for each in (one, other)]
            np.testing.assert_allclose(sums[0], sums[1], rtol=1e-10)
        # Weights of records are this release's own: they go with its outcome.
        assert not np.allclose(one["weight"], other["weight"], rtol=0.01)


def test_check_says_where_counts_come_from(home: Path) -> None:
    words = "Counts: those of the release that survey.weights names, at no cost."
    assert words in check_strict(load_spec(home / "later_in" / "spec.toml"))
    assert words not in check_strict(load_spec(home / "first_in" / "spec.toml"))


def test_costs_add_up_in_the_ledger(home: Path) -> None:
    entries = read_ledger(home / "ledger.jsonl")
    assert [each.rho for each in entries] == [0.4, 0.5]
    assert len({each.survey for each in entries}) == 1


def test_all_is_made_again_without_the_first_release(home: Path, tmp_path: Path) -> None:
    """So whatever follows the noise is a function of published numbers."""
    alone = shutil.copytree(home / "later" / "release", tmp_path / "alone" / "release")
    assert rebuild(alone, tmp_path / "again").different == ()
    published = json.loads((alone / "statistics.json").read_text())
    assert "weights" not in published["specification"]["survey"]
    assert str(home) not in json.dumps(published)
    dossier = " ".join((alone / "dossier.md").read_text().replace("\n>", "\n").split())
    assert "to those of an earlier one" in dossier
    words = " ".join((alone / "README.md").read_text().split())
    assert "multiplied by one factor in each cell, with 12 digits" in words
    codebook = json.loads((alone / "codebook.json").read_text())
    (weight,) = (each for each in codebook["columns"] if each["name"] == "weight")
    assert weight["rounded_to"] == "12 significant digits"


def seeded(home: Path, folder: Path, frame: pd.DataFrame, survey: str) -> Path:
    """The later release as a test, of this sample, beside a copy of the first one."""
    if not (folder / "first").exists():
        shutil.copytree(home / "first", folder / "first")
    spec = spec_in(folder / "in", "employed", frame=frame, survey=survey)
    with first_chains_kept():
        return release(spec, folder / "later", seed=5, overwrite=True).out


@pytest.fixture(scope="module")
def taken(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The later release as a test, of the sample as it is."""
    return seeded(home, tmp_path_factory.mktemp("taken"), frame_of(), TAKES)


def test_counts_come_from_no_confidential_weight_of_the_later_release(
    home: Path, taken: Path, tmp_path: Path
) -> None:
    """Other weights of all records, and only the weights inside cells differ."""
    made = [table(taken), table(seeded(home, tmp_path, frame_of(weights=9), TAKES))]
    np.testing.assert_allclose(made[0]["estimate"], made[1]["estimate"], rtol=1e-10)


def test_outcomes_go_with_weights_inside_cells_as_without_the_counts(
    home: Path, taken: Path, tmp_path: Path
) -> None:
    """One factor a cell and dataset: means of cells are the same. Weights taken from the first
    release record by record would not be."""
    runs = [
        (microdata(out / "release"), table(out, "proportions"))
        for out in (seeded(home, tmp_path, frame_of(), ""), taken)
    ]
    (own, own_means), (taken, taken_means) = runs
    # Estimates of all datasets together weight these by their counts, which are other ones.
    moved = (taken_means["estimate"] - own_means["estimate"]) / own_means["se"]
    assert moved.abs().max() < 0.5
    for name, one in own.items():
        pd.testing.assert_series_equal(one["employed"], taken[name]["employed"])
        factor = (taken[name]["weight"] / one["weight"]).groupby([one["field"], one["gender"]])
        assert (factor.std() / factor.mean()).max() < 2e-3  # weights have four digits
        assert factor.mean().std() > 0.01


def test_one_record_moves_the_later_statistics_by_no_more_than_stated(home: Path) -> None:
    spec = load_spec(home / "later_in" / "spec.toml")
    case = specified_case(spec, 4)
    lines = list(noise_lines(case, changes_for(case.survey.design), 6))
    found = [each.ratio for each in lines if each.ratio is not None]
    assert len(found) > 3
    assert 0.5 < max(found) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frame": frame_of(952)}, "records = 956, and this one 952: .*give both the same"),
        ({"frame": frame_of().replace({"field": {"c": "d"}})},
         "other numbers of records in .* of the cells of 'field', 'gender'"),
        ({"survey": 'strata = "gender"\n'}, "strata = 'field', and this one 'gender'.*give both"),
        ({"survey": "population_size = 31000\n"}, "population_size = 30000.*give both the same"),
        ({"privacy": "rho = 0.5\n", "m": 12}, "m = 10, and this one 12.*give both the same"),
        ({"frame": frame_of().assign(age=lambda f: np.arange(956) % 2),
          "tables": "by = ['age']\nstatistics = ['count']",
          "plan": PLAN.replace("gender'", "gender + age'")},
         "no public column 'age'.*public_columns of that release"),
    ],
)  # fmt: skip
def test_a_release_of_another_design_is_refused(
    home: Path, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    shutil.copytree(home / "first", tmp_path / "first")
    given = {**changes, "survey": TAKES + str(changes.get("survey", ""))}
    draws = given.pop("m", 10)
    spec = spec_in(tmp_path / "in", "employed", **given)  # type: ignore[arg-type]
    text = spec.read_text().replace("m = 10", f"m = {draws}")
    for key in ("strata", "population_size"):  # given again: the last one
        lines = text.splitlines()
        places = [i for i, line in enumerate(lines) if line.startswith(f"{key} =")]
        text = "\n".join(line for i, line in enumerate(lines) if i not in places[:-1])
    spec.write_text(text)
    refusal = f"survey.weights: the release in .*first has {words}"
    with pytest.raises(InputError, match=refusal):
        check_strict(load_spec(spec))
    with pytest.raises(InputError, match=refusal):
        release(spec, tmp_path / "later", ledger=tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_test_with_a_seed_lends_no_counts_to_a_release(home: Path, tmp_path: Path) -> None:
    with first_chains_kept():
        release(home / "first_in" / "spec.toml", tmp_path / "first", seed=1)
    spec = spec_in(tmp_path / "in", "employed", survey=TAKES)
    with pytest.raises(InputError, match="is a test with a seed and not private"):
        release(spec, tmp_path / "later", ledger=tmp_path / "ledger.jsonl")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy": "epsilon = 10.8", "mechanism": "pseudo_posterior"},
         "only a release by noisy statistics takes the counts"),
        ({"labels": "[[calibration]]\nby = ['gender']\ntotals = {f = 15000, m = 15000}\n"},
         "leave .*calibration.* out"),
        ({"survey": 'weights = "release:"\n'},
         "'confidential', 'public' or 'release:PATH', got 'release:'"),
    ],
)  # fmt: skip
def test_a_specification_is_refused_with_a_remedy(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    given = {"survey": TAKES, **changes}
    mechanism = given.pop("mechanism", "noisy_statistics")
    spec = spec_in(tmp_path, "salary", **given)  # type: ignore[arg-type]
    spec.write_text(spec.read_text().replace("noisy_statistics", mechanism))
    with pytest.raises(InputError, match=words):
        load_spec(spec)


def test_a_folder_without_a_release_by_noisy_statistics_is_refused(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    spec = spec_in(tmp_path / "in", "employed", survey=TAKES)
    with pytest.raises(InputError, match=r"has no statistics\.json"):
        release(spec, tmp_path / "later")


def test_counts_that_do_not_fit_together_are_refused() -> None:
    made = ReleaseCounts(("a",), (("x",), ("y",)), ((1, 1),), np.ones((1, 2)))
    again = ReleaseCounts.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again.to_dict() == made.to_dict()
    for key, value in (("totals", [[1.0]]), ("cells", None), ("datasets", [[1]])):
        with pytest.raises(InputError, match="do not fit together"):
            ReleaseCounts.from_dict({**made.to_dict(), key: value})


def test_modules_name_what_stands_in_for_them(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, "salary", privacy="rho = 0.5\nmodules = [['salary']]")
    with pytest.raises(InputError, match=r'modules: .*weights = "release:PATH" in \[survey\]'):
        load_spec(spec)
