"""Rows of some levels taken together, in every part of a release.

Truth: weighted sums of the published microdata, and of the frame of a study, by pandas; the same
release without the key, whose rows are all kept; the README's programs; files built again.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth.errors import InputError
from surveysynth.evaluation.compare.comparison import compare
from surveysynth.evaluation.compare.noise import Noise
from surveysynth.evaluation.compare.report import render_report
from surveysynth.evaluation.studies.coverage import Task
from surveysynth.release.folder.reader import read_release
from surveysynth.release.pipeline import release
from surveysynth.release.preview import preview_lines
from surveysynth.release.rebuild import rebuild
from surveysynth.spec.build import model_of, read_survey
from surveysynth.spec.collapsed import check_other
from surveysynth.spec.spec import load_spec
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform
from tests.evaluation.studies import test_frame_study as frames
from tests.release.documents.test_readme_programs import assert_recomputes
from tests.surveys import small_survey, spec_text, write_survey

MakeSpec = Callable[..., Path]
OTHER = 'other = { field = { "B or C" = ["c", "b"] } }'
KINDS = """outcome = ["salary", "job"]
inference = "paper"
[outcomes.job]
kind = "categorical"
levels = ["full", "none", "part"]
"""
TABLES = f"""
[all_tables]
formats = ["csv", "html", "xlsx", "latex", "markdown"]
[[tables]]
name = "plain"
by = ["field", "gender"]
{OTHER}
statistics = ["count", "mean", "median", "ratio(count, field: margin)"]
[[tables]]
name = "across"
by = ["gender", "field"]
other = {{ field = ["a", "b"] }}
figures = ["svg"]
where = "field != 'c'"
layout = "crosstab"
[[tables]]
name = "jobs"
by = ["job"]
other = {{ job = {{ works = ["full", "part"] }} }}
statistics = ["count", "mean"]
[labels.field]
title = "Field <b>"
levels = {{ a = "Arts", b = "Biology", c = "Chemistry" }}
"""


def spec_of(folder: Path, tables: str = TABLES, **lines: str) -> Path:
    frame = small_survey()
    frame["job"] = np.array(["full", "part", "none"])[np.arange(len(frame)) // 2 % 3]
    text = spec_text(**{"synthesizer": KINDS, "privacy": "m = 2\nreplicates_per_draw = 2", **lines})
    return write_survey(folder, frame, text[: text.index("[tables]")] + tables)


@pytest.fixture
def released(tmp_path: Path, stand_in_mechanism: None) -> Path:
    release(spec_of(tmp_path / "survey"), tmp_path / "out", seed=5)
    return tmp_path / "out" / "release"


def test_rows_are_those_of_the_microdata(released: Path) -> None:
    made = read_release(released)
    plain = {"field": ["b", "c"]}
    works = {"job": ["full", "part"]}
    for name, chosen, label in (("plain", plain, "B or C"), ("jobs", works, "works")):
        ((column, levels),) = chosen.items()
        counts, means = [], []
        for _, _, data in made.datasets():
            part = data[data[column].isin(levels)]
            counts.append(part["weight"].sum())
            means.append(np.average(part["salary"], weights=part["weight"]))
        tables = [made.tables[f"{name}/{each}"] for each in ("counts", "means")]
        for table, expected in zip(tables, (counts, means), strict=True):
            row = table[table[column] == label].iloc[0]
            assert row["estimate"] == pytest.approx(np.mean(expected), rel=1e-9)
            assert row["is_margin"]
            assert row["se"] > 0
    counts = made.tables["plain/counts"]
    for _, of_gender in counts.groupby("gender"):
        by_field = of_gender.set_index("field")[["estimate", "n"]]
        np.testing.assert_allclose(by_field.loc["B or C"], by_field.loc[["b", "c"]].sum())
    shares = made.tables["plain/ratio_counts_field_each_margin"]
    assert set(shares["field"]) == {"a", "b", "c", "B or C"}
    of_row = shares[(shares["field"] == "B or C") & (shares["gender"] == "All")]
    whole = counts.query("field == 'All' and gender == 'All'")["estimate"].item()
    row = counts.query("field == 'B or C' and gender == 'All'")["estimate"].item()
    assert of_row["estimate"].item() == pytest.approx(row / whole, rel=0.02)  # a mean of ratios
    # Of a subpopulation without "c" it is everybody.
    across = made.tables["across/counts"].set_index(["gender", "field"])["estimate"]
    assert list(across.index.get_level_values("field").unique()) == ["All", "a", "b", "other"]
    np.testing.assert_allclose(across.xs("other", level="field"), across.xs("All", level="field"))


def test_all_other_rows_stay_as_they_are(tmp_path: Path, stand_in_mechanism: None) -> None:
    tables = TABLES.replace(', "html", "xlsx", "latex", "markdown"', "").replace('["svg"]', "[]")
    release(spec_of(tmp_path / "with", tables), tmp_path / "a", seed=5)
    text = "\n".join(line for line in tables.splitlines() if not line.startswith("other"))
    release(spec_of(tmp_path / "without", text), tmp_path / "b", seed=5)
    made, plain = (read_release(tmp_path / name).tables for name in ("a", "b"))
    for stem, frame in plain.items():
        columns = [name for name in ("field", "gender", "job") if name in frame]
        kept = frame[columns].merge(made[stem], on=columns)
        names = ["estimate", "se", "n"]
        pd.testing.assert_frame_equal(kept[names], frame[names], check_dtype=False)
        assert len(made[stem]) > len(frame)
    assert not (made["plain/means"]["ci_upper"] <= 0).any()


def test_documents_explain_the_rows(released: Path) -> None:
    page = (released / "tables" / "plain" / "means.html").read_text(encoding="utf-8")
    assert "Levels taken together: Field &lt;b&gt; &#39;B or C&#39; is Chemistry and Biology." in (
        page.replace("&#x27;", "&#39;")
    )
    assert ">B or C<" in page
    crossed = (released / "tables" / "across" / "counts.html").read_text(encoding="utf-8")
    assert "other" in crossed
    readme = (released / "README.md").read_text(encoding="utf-8")
    assert "over some levels taken together" in readme
    codebook = json.loads((released / "codebook.json").read_text(encoding="utf-8"))
    columns = {column["name"]: column for column in codebook["columns"]}
    assert columns["field"]["taken_together_in_tables"] == {
        "B or C": ["c", "b"], "other": ["a", "b"],
    }  # fmt: skip
    assert columns["job"]["taken_together_in_tables"] == {"works": ["full", "part"]}
    assert "taken_together_in_tables" not in columns["gender"]
    privacy = json.loads((released / "privacy.json").read_text(encoding="utf-8"))
    assert privacy["settings"]["tables"][0]["other"] == {"field": {"B or C": ["c", "b"]}}
    for path in (released / "tables").rglob("*.csv"):
        assert "\0" not in path.read_text(encoding="utf-8")
    assert_recomputes_first(released)


def assert_recomputes_first(folder: Path) -> None:
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "'B or C'" not in readme.split("```python")[1]


def test_programs_recompute_a_row_of_single_levels(
    tmp_path: Path, make_spec: MakeSpec, stand_in_mechanism: None
) -> None:
    # All interior rows have few records, so that the program is of a margin, and not of the new.
    tables = f"statistics = ['mean']\n{OTHER}"
    release(make_spec(small_survey(), tables=tables), tmp_path / "out", seed=5)
    assert_recomputes(tmp_path / "out" / "release", r=False)


def test_what_will_be_published_is_told(tmp_path: Path) -> None:
    spec = load_spec(spec_of(tmp_path / "survey"))
    design = read_survey(spec).design
    lines = "\n".join(preview_lines(spec, design, model_of(spec)))
    assert "Cells: 6 and 9 margins" in lines  # 3 and 2 levels, a margin each, and one more row
    assert "(12 to 15 rows each)" in lines


def test_a_comparison_has_the_rows_with_noise_of_their_own(
    tmp_path: Path, stand_in_mechanism: None
) -> None:
    tables = f"[tables]\nby = ['field', 'gender']\n{OTHER}\nstatistics = ['count', 'mean']\n"
    path = spec_of(tmp_path / "survey", tables, synthesizer="inference = 'paper'")
    spec, methods = load_spec(path), ["laplace", "laplace_consistent", "fbs"]
    made = compare(spec, read_survey(spec), methods=methods, seed=1)
    counts = made.tables["count", None]
    keys = ["field", "gender"]
    for method in (*methods, "sample"):
        of_method = counts[method].set_index(keys)["estimate"]
        assert len(of_method) == 15
        assert np.isfinite(of_method).all()
        assert not counts[method]["field"].str.startswith("\0").any()
        added = of_method.loc["b"] + of_method.loc["c"]
        close = np.allclose(added, of_method.loc["B or C"], rtol=1e-9)
        assert close == (method != "laplace")  # where every row has noise of its own
    page = render_report(made, [], test=True)
    assert "each of 6 margin sets has an equal part" in page
    # The share of a margin set is a sixth in place of a fourth.
    sizes = []
    for text in (tables, tables.replace(OTHER, "")):
        each = load_spec(spec_of(tmp_path / str(len(sizes)), text, synthesizer=""))
        noise = Noise(each, read_survey(each))
        own = noise.laplace("honest", np.random.default_rng(1))["laplace"]["count", None]
        off = own["estimate"].iloc[0] - noise.sample["count", None]["estimate"].iloc[0]
        sizes.append(abs(off))
    assert sizes[0] / sizes[1] == pytest.approx(6 / 4)


@pytest.mark.usefixtures("stand_in_posterior")
def test_noisy_statistics_are_looked_at_and_rebuilt(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path / "survey", f"[tables]\nby = ['field', 'gender']\n{OTHER}\n",
        synthesizer="chains = 2\ndraws = 100\nwarmup = 100", survey="population_size = 30000",
        privacy="mechanism = 'noisy_statistics'\ndelta = 1e-6\nm = 10\nreplicates_per_draw = 1\n"
        "[outcomes.salary]\ncentre = 22000\nspread = 0.6",
    )  # fmt: skip
    made = ss.release(spec, tmp_path / "out", seed=2)
    again = rebuild(tmp_path / "out", tmp_path / "again")
    assert again.different == ()
    looked = pd.read_csv(made.confidential / "adequacy.csv", dtype={"field": str})
    frame = small_survey()
    inside = frame["field"].isin(["b", "c"])
    row = looked.query("field == 'B or C' and gender == 'All' and statistic == 'mean'").iloc[0]
    expected = np.average(frame["salary"][inside], weights=frame["weight"][inside])
    assert row["sample"] == pytest.approx(expected)
    assert row["n"] == inside.sum()


def test_a_study_on_a_frame_knows_the_truth(quick: None) -> None:
    heat = {"by": ["heat", "sex"], "other": {"heat": {"fossil": ["gas", "oil"]}},
            "statistics": ["count", "mean", "median"]}  # fmt: skip
    spec = frames.spec_of(tables=heat)
    study = frames.study_of(spec, samples=3)
    truth, frame = study.truth, frames.FRAME
    inside = frame[frame["heat"].isin(["gas", "oil"]) & (frame["sex"] == "f")]
    at: dict[str, Any] = {"heat": "fossil", "sex": "f"}
    assert frames.value(truth, statistic="count", **at) == len(inside)
    of = {**at, "outcome": "income"}
    assert frames.value(truth, statistic="mean", **of) == pytest.approx(inside["income"].mean())
    assert frames.value(truth, statistic="median", **of) == frames.smallest_reaching(
        inside["income"], 0.5
    )
    ran = study.run(Task(0, "own")).replicates
    assert set(truth.query("heat == 'fossil'")["row"]) <= set(ran["row"])


quick = frames.quick


def test_the_same_rows_in_a_notebook(stand_in_mechanism: None) -> None:
    survey = Survey.from_frame(
        small_survey(), weight="weight", by=["field", "gender"], strata="field",
        outcomes=[Outcome("salary", transform=Transform("log"))],
    )  # fmt: skip
    options: dict[str, Any] = {
        "mechanism": "pseudo_posterior", "epsilon": 10.8, "m": 2, "replicates_per_draw": 2,
        "inference": "paper", "seed": 5,
    }  # fmt: skip
    made = ss.tables(survey, other={"field": ["b", "c"]}, **options)
    counts = made.frame.query("statistic == 'count'").set_index(["field", "gender"])["estimate"]
    np.testing.assert_allclose(counts["other"], counts["b"] + counts["c"])
    assert "other" in made._repr_html_()
    several = ss.tables(
        survey, several=[{"name": "x", "other": {"field": {"later": ["b", "c"]}}}], **options
    )
    assert set(several.frame["field"]) == {"All", "a", "b", "c", "later"}
    with pytest.raises(InputError, match=r"tables.other: field: the row 'other' takes together"):
        ss.tables(survey, other={"field": ["b", "d"]}, **options)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ('other = { feild = ["a", "b"] }',
         "tables.other: 'feild' is not among tables.by: 'field', 'gender'. Did you mean 'field'?"),
        ('other = { field = ["a", "z"] }', "tables.other: field: the row 'other' takes together "
         "'z', but the levels of 'field' are 'a', 'b', 'c'."),
        ('other = { field = ["a"] }', "two or more different levels, got 'a'"),
        ('other = { field = ["a", "b", "c"] }', "takes all levels together, which is the margin"),
        ('other = { field = { a = ["b", "c"] } }', "has the label of a level of 'field'"),
        ('other = ["a"]', "expected a table of columns and levels; for example other = {"),
        ("other = { field = [1, 2] }", "needs a list of levels as texts in quotes"),
        ("other = { field = {} }", "field: no levels are given"),
        ('other = { field = { "" = ["b", "c"] } }', "expected labels of printable text, got ''"),
    ],
)  # fmt: skip
def test_every_mistake_stops_before_the_mechanism(
    make_spec: MakeSpec, tmp_path: Path, key: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        release(make_spec(small_survey(), tables=key), tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_study_of_samples_refuses_the_key(make_spec: MakeSpec) -> None:
    with pytest.raises(InputError, match=r"tables.other: a study of a population has rows of sing"):
        load_spec(make_spec(small_survey(), tables=f"{OTHER}\n[study]\nn = 50"))


_NAMES = st.text(max_size=6)
_GIVEN = st.recursive(
    st.one_of(st.none(), st.integers(), _NAMES), lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)
    ), max_leaves=8,
)  # fmt: skip


@given(_GIVEN)
def test_any_value_is_rows_or_refused_with_words(value: Any) -> None:
    made, words = {}, ""
    try:
        made = check_other(value)
    except ValueError as error:
        words = str(error)
    assert not words or any(each in words for each in ("expected", "needs", "no levels"))
    assert check_other({c: {k: list(v) for k, v in g.items()} for c, g in made.items()}) == made
    for groups in made.values():
        assert groups
        assert all(len(set(levels)) == len(levels) >= 2 for levels in groups.values())
