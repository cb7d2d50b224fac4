"""Several tables in one release, at one epsilon.

Truth: each table released alone with the same seed, to the last bit; runs of the mechanism and
lines of the ledger counted; links of the contents page against the folder; the microdata by pandas.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.config.build import model_of, read_survey
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import TABLE, TABLE_COLUMNS
from surveysynth.evaluation.compare.comparison import compare
from surveysynth.evaluation.compare.folder import render_report
from surveysynth.evaluation.laplace import Noise
from surveysynth.mechanisms.noisy_statistics.mechanism import NoisyStatisticsMechanism
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics
from surveysynth.release.check import preview_lines
from surveysynth.release.folder import DOSSIER_NAMES
from surveysynth.release.pipeline import rebuild, release
from surveysynth.release.reader import read_release
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import LearnedTransform, Transform
from tests.release.conftest import stand_ins
from tests.surveys import NOISY, WEIGHT, small_survey, spec_text, write_survey

SEVERAL = """
[all_tables]
title = "Salaries"
statistics = ["count", "mean"]
[[tables]]
name = "by_field"
by = ["field"]
title = "Salaries by field"
statistics = ["mean", "median"]
formats = ["csv", "html", "xlsx", "latex", "markdown", "svg"]
[[tables]]
name = "women"
by = ["field"]
where = "gender == 'f' and field in ('a', 'b')"
flags = "nchs"
[[tables]]
name = "cross"
by = ["field", "gender"]
layout = "crosstab"
[[tables]]
name = "employed"
by = ["field"]
where = "employed == 1"
level = 0.9
[labels.gender]
title = "Gender <b>"
levels = { f = "Women", m = "Men" }
"""
pytestmark = pytest.mark.xdist_group("several tables")  # what its tests share is made once

#: The same model whatever the tables are by.
KINDS = """outcome = ["salary", "employed"]
predictors = "field + gender"
covariance_by = []
[outcomes.salary]
center = 22000
spread = 0.6
[outcomes.employed]
kind = "binary"
"""


def spec_of(folder: Path, tables: str, **lines: str) -> Path:
    weight = WEIGHT * ("population_size" not in lines.get("survey", ""))
    text = spec_text(**{"synthesizer": KINDS + weight, "privacy": NOISY, **lines})
    return write_survey(folder, small_survey(), text[: text.index("[tables]")] + tables)


@pytest.fixture
def specification(tmp_path: Path) -> Path:
    return spec_of(tmp_path / "survey", SEVERAL)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    with stand_ins():
        release(spec_of(folder / "survey", SEVERAL), folder / "out", seed=5)
    return folder / "out" / "release"


def alone(folder: Path, table: str) -> dict[str, pd.DataFrame]:
    """One table with the settings that it has among several, released by itself.

    The columns of the others stay in the model through the formula."""
    spec = spec_of(folder, table)
    release(spec, folder / "out", seed=5)
    return dict(read_release(folder / "out").tables)


def test_every_table_is_what_it_is_alone(
    released: Path, tmp_path: Path, stand_in_mechanism: None
) -> None:
    together = read_release(released).tables
    single = {
        "by_field": '[tables]\nby = ["field"]\nstatistics = ["mean", "median"]',
        "women": "[tables]\nby = ['field']\nwhere = \"gender == 'f' and field in ('a', 'b')\"\n"
        "flags = 'nchs'",
        "cross": "[tables]\nby = ['field', 'gender']\nlayout = 'crosstab'",
        "employed": "[tables]\nby = ['field']\nwhere = 'employed == 1'\nlevel = 0.9",
    }
    for name, table in single.items():
        for stem, frame in alone(tmp_path / name, table).items():
            pd.testing.assert_frame_equal(together[f"{name}/{stem}"], frame)


def test_a_subpopulation_is_that_of_the_microdata(released: Path) -> None:
    tables, release_ = read_release(released).tables, read_release(released)
    inside = {
        "women": lambda data: (data["gender"] == "f") & data["field"].isin(["a", "b"]),
        "employed": lambda data: data["employed"] == 1,
    }
    for name, chosen in inside.items():
        parts = [data[chosen(data)] for _, _, data in release_.datasets()]
        counts = [part["weight"].sum() for part in parts]
        stacked = pd.concat(parts)
        first = tables[f"{name}/counts"].iloc[0]
        np.testing.assert_allclose(first["estimate"], np.mean(counts), rtol=1e-9)
        np.testing.assert_allclose(
            tables[f"{name}/means"].iloc[0]["estimate"],
            np.average(stacked["salary"], weights=stacked["weight"]), rtol=1e-9,
        )  # fmt: skip
    assert list(tables["women/counts"]["field"]) == ["All", "a", "b"]
    assert tables["employed/counts"]["n"].isna().all()  # who is employed is confidential
    assert tables["women/counts"]["n"].notna().all()


def test_parts_are_not_said_to_add_up_to_the_population(
    tmp_path: Path, stand_in_mechanism: None
) -> None:
    tables = "[[tables]]\nname = 'whole'\n[[tables]]\nname = 'part'\nwhere = \"field == 'a'\"\n"
    made = release(
        spec_of(tmp_path / "survey", tables, survey="population_size = 30000"), tmp_path / "out"
    ).tables
    words = "add up to the public population size, which has no sampling error."
    assert f"Counts {words}" in made["whole/count"][0].notes
    of_part = f"Counts of all records, of which these are a part, {words}"
    assert of_part in made["part/count"][0].notes
    assert made["part/count"][0].frame["estimate"].iloc[0] < 20000


def test_documents_speak_of_every_table(released: Path) -> None:
    readme = (released / "README.md").read_text(encoding="utf-8")
    privacy = json.loads((released / "privacy.json").read_text(encoding="utf-8"))
    codebook = json.loads((released / "codebook.json").read_text(encoding="utf-8"))
    for name in ("by\\_field", "women", "cross", "employed"):
        assert f"**{name}**" in readme
    assert "95% or 90% interval" in readme
    settings = privacy["settings"]
    assert settings["by"] == ["field", "gender"]
    assert [each["name"] for each in settings["tables"]] == [
        "by_field", "women", "cross", "employed"
    ]  # fmt: skip
    assert settings["tables"][3]["where"] == "employed == 1"
    assert "by" in settings["tables"][0]
    roles = {column["name"]: column["roles"] for column in codebook["columns"]}
    assert "table" in roles["field"]
    assert "table" in roles["gender"]


def test_ten_tables_are_one_fit_one_epsilon_and_one_line_of_the_ledger(
    tmp_path: Path, stand_in_mechanism: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, ordinary = [], survey_statistics.release_statistics

    def counted(*arguments: Any, **named: Any) -> Any:
        runs.append(arguments)
        return ordinary(*arguments, **named)

    monkeypatch.setattr(survey_statistics, "release_statistics", counted)
    tables = "[all_tables]\ntitle = 'Ten tables'\n"
    for number in range(10):
        where = f"where = \"field != '{'abc'[number % 3]}'\"\n" if number % 2 else ""
        tables += f"[[tables]]\nname = 'table_{number:02d}'\nby = ['field', 'gender']\n{where}"
    ledger = tmp_path / "ledger.jsonl"
    result = release(spec_of(tmp_path / "survey", tables), tmp_path / "out", ledger=ledger)
    assert len(runs) == 1
    assert len(ledger.read_text().splitlines()) == 1
    assert result.ledger.strict_epsilon == pytest.approx(10.8)  # type: ignore[attr-defined]
    folder = tmp_path / "out" / "release"
    assert len(list((folder / "tables").iterdir())) == 10
    assert len(result.tables) == 20
    first, last = (pd.read_csv(folder / f"tables/table_{k}/counts.csv") for k in ("00", "08"))
    pd.testing.assert_frame_equal(first, last)


def test_what_will_be_published_is_told_table_by_table(specification: Path) -> None:
    spec = load_spec(specification)
    design = read_survey(spec).design
    lines = "\n".join(map(str, preview_lines(spec, design, model_of(spec))))
    assert "Table women, by field:" in lines
    assert "Of a subpopulation: Gender <b> is Women and field is a or b." in lines
    assert "Cells: 2 and 1 margins" in lines
    assert "Each is divided further by employed" in lines
    assert "tables/cross/means.html (12 rows each)" in lines


def test_contrasts_have_the_rows_that_are_told(tmp_path: Path, stand_in_mechanism: None) -> None:
    """Truth: the lines of the csv files."""
    tables = "[[tables]]\nname = 'both'\nby = ['field', 'gender']\nformats = ['csv']\n" \
        "where = \"field != 'c'\"\nstatistics = ['count', 'difference(mean, field: a - b)', " \
        "'ratio(count, gender: margin)']\n"
    path = spec_of(tmp_path / "survey", tables)
    folder = release(path, tmp_path / "out").out / "release"
    sizes = [len(pd.read_csv(each)) for each in (folder / "tables" / "both").glob("*.csv")]
    assert sorted(sizes) == [3, 6, 9]
    spec = load_spec(path)
    design = read_survey(spec).design
    lines = "\n".join(map(str, preview_lines(spec, design, model_of(spec))))
    assert "(3 to 9 rows each)" in lines


def test_a_comparison_looks_at_the_rows_of_all_tables(
    specification: Path, stand_in_mechanism: None
) -> None:
    spec = load_spec(specification)
    made = compare(spec, read_survey(spec), methods=["laplace", "fbs_noisy"], seed=1)
    counts = made.tables["count", None]
    rows = counts["sample"].groupby("table", sort=False).size()
    assert dict(rows) == {"women": 3, "cross": 12, "employed": 4}
    # Noise is made in rows of all records by public columns.
    noisy = counts["laplace"].groupby("table")["estimate"].count()
    assert dict(noisy) == {"cross": 12, "employed": 0, "women": 0}
    page = render_report(made, [], test=True)
    for words in ("(table women); Gender &lt;b&gt; is Women", "(table cross)", "(table by_field)"):
        assert words in page
    assert made.frame()["table"].notna().all()


def test_a_notebook_makes_the_tables_of_the_file(
    released: Path, stand_in_mechanism: None
) -> None:
    sample = Survey.from_frame(
        small_survey(), weight="weight", by=["field", "gender"], strata="field",
        outcomes=[Outcome("salary", transform=Transform("log")), Outcome("employed", "binary")],
        weight_transform=LearnedTransform(low=1.0, high=1e5), predictors="field + gender",
    )  # fmt: skip
    made = ss.tables(
        sample, mechanism="noisy_statistics", epsilon=10.8, m=10, replicates_per_draw=1, seed=5,
        sections={"outcomes": {"salary": {"center": 22000.0, "spread": 0.6}},
                  "synthesizer": {"covariance_by": []}},
        several=[
            {"name": "by_field", "by": "field", "statistics": ["mean", "median"]},
            {"name": "women", "by": "field", "flags": "nchs",
             "where": "gender == 'f' and field in ('a', 'b')"},
            {"name": "cross", "by": ["field", "gender"], "layout": "crosstab"},
            {"name": "employed", "by": "field", "where": "employed == 1", "level": 0.9},
        ],
    )  # fmt: skip
    assert list(made.several) == ["by_field", "women", "cross", "employed"]
    files = read_release(released).tables
    for name, frame in files.items():
        table, stem = name.split("/")
        statistic = {"counts": "count", "means": "mean", "medians": "median"}[stem]
        (own,) = made[table].tables[statistic]
        np.testing.assert_allclose(own.frame["estimate"], frame["estimate"], rtol=1e-12)
        np.testing.assert_allclose(own.frame["se"], frame["se"], rtol=1e-12)
    assert set(made.frame["table"]) == set(made.several)
    assert "4 tables of 240 records: by_field, women, cross and employed" in repr(made)
    shown = made._repr_html_()
    assert shown.count("<table") == sum(len(each.tables) for each in made.several.values())
    assert made["cross"]["mean"].statistics == ("mean",)
    one = made["women/mean"]
    assert (one.statistics, dict(one.several)) == (("mean",), {})
    assert one.frame.equals(made["women"]["mean"].frame)
    assert "women" not in repr(one)
    assert set(one.frame) <= {*TABLE_COLUMNS, "field"}
    assert set(made.frame) == {*TABLE_COLUMNS, TABLE, "field", "gender"}
    with pytest.raises(InputError, match=r"private_tables\['by_field'\].plot"):
        made.plot()
    with pytest.raises(InputError, match=r"there are by_field, women, cross and employed\. Did"):
        made["womens"]
    with pytest.raises(InputError, match="no table of 'median'; there are count and mean"):
        made["women/median"]


def test_noise_of_several_tables_shares_one_budget(tmp_path: Path) -> None:
    one = "[tables]\nby = ['field']\nstatistics = ['count']\n"
    two = "[[tables]]\nname = 'x'\n" + one[9:] + "[[tables]]\nname = 'y'\n" + one[9:]
    sizes = []
    for name, text in (("one", one), ("two", two)):
        spec = load_spec(spec_of(tmp_path / name, text))
        noise = Noise(spec, read_survey(spec))
        own = noise.laplace("honest", np.random.default_rng(1))["count", None]
        off = own["estimate"] - noise.sample["count", None]["estimate"]
        sizes.append(float(np.abs(off[:4]).mean()))
    np.testing.assert_allclose(2 * sizes[0], sizes[1], rtol=1e-9)


@pytest.mark.usefixtures("stand_in_posterior")
def test_noisy_statistics_are_rebuilt_with_every_table(tmp_path: Path) -> None:
    tables = (
        "[all_tables]\nformats = ['csv']\n[[tables]]\nname = 'a'\nby = ['field']\n"
        "[[tables]]\nname = 'b'\nby = ['gender']\nwhere = \"field != 'c'\"\n"
    )
    spec = spec_of(
        tmp_path / "survey", tables, survey="population_size = 30000",
        synthesizer="[outcomes.salary]\ncenter = 22000\nspread = 0.6",
    )  # fmt: skip
    release(spec, tmp_path / "out", seed=2)
    again = rebuild(tmp_path / "out", tmp_path / "again")
    assert again.different == ()
    assert set(again.same) == {
        *DOSSIER_NAMES, "tables/a/counts.csv", "tables/a/means.csv",
        "tables/b/counts.csv", "tables/b/means.csv",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "statistic", "words"),
    [
        ("gender == 'F'", "count", "tables.where of table 'x': character 1: no record has the"),
        ("field == 1", "mean", "'field' is compared with a number, but 3 of its 3 levels are not"),
        ("employed == 1 and employed == 0", "mean",
         "tables.where of table 'x': no record of the survey can be in the subpopulation"),
        ("gender == 'f'", "difference(mean, gender: f - m)",
         "tables.statistics of table 'x': A contrast needs levels of 'gender' that the"),
        ("gender == 'f'", "ratio(mean, field: each / z)", "'a', 'b', 'c', but names 'z'"),
    ],
)
def test_what_the_survey_does_not_allow_stops_before_the_mechanism(
    tmp_path: Path, where: str, statistic: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spent(*arguments: Any, **named: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(NoisyStatisticsMechanism, "run", spent)
    tables = (
        f"[[tables]]\nname = 'x'\nby = ['field', 'gender']\nwhere = \"{where}\"\n"
        f"statistics = ['{statistic}']\n"
    )
    with pytest.raises(InputError) as caught:
        release(spec_of(tmp_path / "survey", tables), tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()
