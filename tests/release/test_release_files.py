"""What a release writes. Truth: the contract of the files, and the README's own program."""

import ast
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.release import files
from surveysynth.release.check import preview_lines
from surveysynth.release.documents.readme import python_literal
from surveysynth.release.pipeline import ReleaseResult, release
from tests.surveys import MakeSpec, small_survey

pytestmark = pytest.mark.usefixtures("stand_in_mechanism")

RATIO = "population_size = 30000"


def test_files_and_numbers_are_the_contract(make_spec: MakeSpec, tmp_path: Path) -> None:
    result = release(make_spec(survey=RATIO), tmp_path / "out")
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*")}
    microdata = {f"draw_{d:02d}_rep_{r:02d}.csv" for d in (1, 2, 3) for r in (1, 2, 3, 4)}
    assert names == {
        "release", "release/README.md", "release/codebook.json", "release/codebook.xml",
        "release/privacy.json", "release/index.html",
        "release/dossier.html", "release/dossier.md",
        "release/tables", "release/microdata", *(f"release/microdata/{name}" for name in microdata),
        "release/tables/counts.csv", "release/tables/counts.html",
        "release/tables/means.csv", "release/tables/means.html",
        "confidential", "confidential/ledger.jsonl", "confidential/realised.json",
        "confidential/records.csv", "confidential/draws.json",
    }  # fmt: skip
    assert isinstance(result, ReleaseResult)
    assert list(result.tables) == ["count", "mean"]
    for name in ("counts", "means"):
        table = pd.read_csv(tmp_path / "out" / "release" / "tables" / f"{name}.csv")
        numbers = ["estimate", "se", "df", "df_design", "ci_lower", "ci_upper", "n", "flag"]
        assert list(table.columns) == ["field", "gender", "is_margin", *numbers]
        assert len(table) == 12
        assert table["is_margin"].sum() == 6
        assert (table["n"].iloc[0], table["df_design"].iloc[0]) == (240, 237)
    counts = pd.read_csv(tmp_path / "out" / "release" / "tables" / "counts.csv")
    cells = counts.set_index(["field", "gender"])["estimate"]
    assert cells["All", "All"] == pytest.approx(30000, rel=1e-12)
    for field in ("All", "a", "b", "c"):
        both = cells[field, "f"] + cells[field, "m"]
        assert both == pytest.approx(cells[field, "All"], rel=1e-12)
    record = json.loads((tmp_path / "out" / "release" / "privacy.json").read_text())
    assert record["private"] is True
    assert record["warnings"] == []
    assert (record["epsilon"], record["m"], record["draws"], record["chains"]) == (10.8, 3, 1000, 4)
    assert record["lipschitz_bound"] == pytest.approx(1.8)
    assert "asymptotic" in record["guarantee"]
    assert record["statement"]
    assert record["assumptions"]
    assert record["versions"]["numpy"] == np.__version__
    assert not re.search("realised|r_hat|ess|seed", " ".join(record["settings"]))
    assert record["settings"]["covariance_by"] == []  # the default of this mechanism


def test_a_literal_cannot_end_the_block_it_stands_in() -> None:
    text = "```\nimport os"
    assert "`" not in python_literal(text)
    assert ast.literal_eval(python_literal(text)) == text


@pytest.mark.parametrize(
    ("privacy", "settings", "told"),
    [
        (
            'risk = "pairwise"\nradius = 0.1\npattern = ["gender"]\nweights = "reweighted"\n'
            'allow = ["shared_weights"]',
            {"radius": 0.1, "radius_kind": "relative", "pattern": ["gender"], "weights": "linear",
             "scale": None, "shift": 0.0, "reweight": True},
            "the records with the same gender",
        ),
        ('risk = "count"\nscale = [0.9, -0.05]\nallow = ["shared_weights"]', {"shift": -0.05},
         "Count-based risks"),
        (
            'risk = "scalar"\nallow = ["shared_weights"]',
            {"weights": "linear", "allow": ["shared_weights"]}, "DOES NOT KEEP WHAT IS STATED",
        ),
    ],
)  # fmt: skip
def test_privacy_json_has_the_settings_of_the_risk_measure(
    make_spec: MakeSpec, tmp_path: Path, privacy: str, settings: dict[str, Any], told: str
) -> None:
    spec = make_spec(privacy=privacy)
    release(spec, tmp_path / "out")
    record = json.loads((tmp_path / "out" / "release" / "privacy.json").read_text())
    assert f'risk = "{record["risk"]}"' in privacy
    assert {key: record["settings"][key] for key in settings} == settings
    assert told in " ".join([*record["statement"], *record["not_covered"]])
    loaded = load_spec(spec)
    lines = " ".join(map(str, preview_lines(loaded, read_survey(loaded).design, get_model("fbs"))))
    assert f"Risk: {record['risk']}" in lines
    assert "linear weights." in lines


@pytest.mark.parametrize(
    ("privacy", "seed", "warning"),
    [("", 5, "this is a test and not private"), ('risk = "none"', None, "NOT PRIVATE")],
)
def test_every_file_of_an_unprivate_release_says_so(
    make_spec: MakeSpec, tmp_path: Path, privacy: str, seed: int | None, warning: str
) -> None:
    result = release(make_spec(privacy=privacy), tmp_path / "out", seed=seed)
    folder = tmp_path / "out" / "release"
    for name in ("README.md", "privacy.json", "codebook.json", "tables/counts.html"):
        assert warning in (folder / name).read_text(encoding="utf-8"), name
    record = json.loads((folder / "privacy.json").read_text())
    assert record["private"] is False
    assert any(warning in str(text) for text in result.warnings)
    told = " ".join(result.ledger.sentences())
    assert "not counted" in told if seed is not None else "no total" in told
    if seed is None:
        assert record["epsilon"] is None
        assert record["lipschitz_bound"] is None


def test_a_seed_repeats_a_release_and_its_absence_does_not(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = make_spec()
    for name, seed in (("a", 1), ("b", 1), ("c", None), ("d", None)):
        release(spec, tmp_path / name, seed=seed)
    contents = {
        name: (tmp_path / name / "release" / "tables" / "means.csv").read_bytes() for name in "abcd"
    }
    assert contents["a"] == contents["b"]
    assert len(set(contents.values())) == 3
    for path in (tmp_path / "a" / "release").rglob("*"):
        if path.is_file():
            other = tmp_path / "b" / path.relative_to(tmp_path / "a")
            assert path.read_bytes() == other.read_bytes(), path


def test_codebook_describes_every_column(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(
        survey='fpc = "fraction"\npublic_columns = ["employed"]',
        labels='[labels.field]\nlevels = { c = "Chemistry", a = "Art", b = "Biology" }\n'
        '[labels.salary]\ntitle = "Pay"\nunit = "dollars"',
    )
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release"
    codebook = json.loads((folder / "codebook.json").read_text())
    microdata = pd.read_csv(folder / codebook["files"][0]["file"])
    assert [column["name"] for column in codebook["columns"]] == list(microdata.columns)
    said = "**fraction** is the exception: it holds the sampling fraction"
    assert said in (folder / "README.md").read_text()
    public = ["field", "gender", "employed", "fraction"]
    assert list(microdata.columns) == [*public, "salary", "weight"]
    columns = {column["name"]: column for column in codebook["columns"]}
    assert codebook["synthetic_columns"] == ["salary", "weight"]
    assert {name for name, c in columns.items() if c["source"] == "synthetic"} == {
        "salary",
        "weight",
    }
    assert columns["field"]["roles"] == ["table", "stratum", "predictor"]
    assert [level["label"] for level in columns["field"]["levels"]] == [
        "Chemistry",
        "Art",
        "Biology",
    ]
    assert (columns["salary"]["title"], columns["salary"]["unit"]) == ("Pay", "dollars")
    assert codebook["variance_pair"]["outcomes"] == ["salary"]
    assert codebook["variance_pair"]["weight"] == "weight"
    assert len(codebook["files"]) == 12
    tables = pd.read_csv(folder / "tables" / "counts.csv")
    assert tables["field"].drop_duplicates().tolist() == ["All", "c", "a", "b"]


def test_several_outcomes_share_files_whose_order_tells_nothing(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    frame = small_survey().sort_values("salary", ignore_index=True)
    frame["bonus"] = frame["salary"] ** 0.5 * np.exp(np.sin(np.arange(len(frame))))
    spec = make_spec(frame)
    spec.write_text(spec.read_text().replace('outcome = "salary"', 'outcome = ["salary", "bonus"]'))
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release" / "tables"
    means = pd.read_csv(folder / "means.csv")
    assert means.columns[0] == "outcome"
    assert means["outcome"].value_counts().to_dict() == {"salary": 12, "bonus": 12}
    assert "outcome" not in pd.read_csv(folder / "counts.csv")
    microdata = pd.read_csv(folder.parent / "microdata" / "draw_01_rep_01.csv")
    public = microdata[["field", "gender"]]
    assert public.equals(public.sort_values(["field", "gender"], ignore_index=True))


def test_labels_units_and_order_reach_every_format(make_spec: MakeSpec, tmp_path: Path) -> None:
    labels = (
        '[labels.field]\ntitle = "Subject"\nmargin = "Every subject"\n'
        'levels = { c = "Chemistry", a = "Art", b = "Biology" }\n'
        '[labels.salary]\ntitle = "Pay"\nunit = "EUR"\n'
        '[labels.gender]\nlevels = { m = "<script>&", f = "Women" }\nmargin = "Both"'
    )
    tables = (
        'title = "Pay of graduates"\nstatistics = ["mean"]\n'
        'formats = ["csv", "html", "latex", "xlsx", "markdown", "svg"]'
    )
    release(make_spec(labels=labels, tables=tables), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    with zipfile.ZipFile(folder / "tables" / "tables.xlsx") as parts:
        texts = {"xlsx": parts.read("xl/sharedStrings.xml").decode()}
    for name in ("means.html", "means.tex", "means.md"):
        texts[name] = (folder / "tables" / name).read_text(encoding="utf-8")
    texts["svg"] = (folder / "figures" / "means.svg").read_text(encoding="utf-8")
    for name, text in texts.items():
        places = [text.rindex(word) for word in ("Chemistry", "Art", "Biology")]
        assert places == sorted(places), name
        for word in ("Pay of graduates", "EUR", *(["Subject"] if name != "svg" else [])):
            assert word in text, (name, word)
    assert pd.read_csv(folder / "tables" / "means.csv")["field"].unique().tolist() == [
        "Every subject", "c", "a", "b",
    ]  # fmt: skip
    assert "&lt;script&gt;&amp;" in texts["means.html"]
    assert "<script" not in texts["means.html"]
    genders = pd.read_csv(folder / "tables" / "means.csv")["gender"]
    assert genders.unique().tolist() == ["Both", "m", "f"]
    codebook = json.loads((folder / "codebook.json").read_text())
    columns = {column["name"]: column for column in codebook["columns"]}
    assert columns["field"]["margin_in_tables"] == "Every subject"
    assert (columns["salary"]["title"], columns["salary"]["unit"]) == ("Pay", "EUR")
    readme = (folder / "README.md").read_text()
    named = re.findall(r"^- `((?:tables|figures)/[^`]+)`", readme, re.MULTILINE)
    made = [p.relative_to(folder).as_posix() for p in folder.glob("[tf]*/*")]
    assert sorted(named) == sorted(made)


def test_dropped_records_are_counted_in_the_notes(make_spec: MakeSpec, tmp_path: Path) -> None:
    frame = small_survey()
    frame.loc[:6, "salary"] = np.nan
    release(make_spec(frame, survey='missing = "drop"'), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    assert "7 survey records with missing values" in (folder / "tables" / "counts.html").read_text()
    assert "7 survey records with missing values" in (folder / "README.md").read_text()


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt()])
def test_a_failing_writer_leaves_nothing(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    spec = make_spec()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(files, "write_documents", fail)
    with pytest.raises(type(error)):
        release(spec, tmp_path / "out", confidential=tmp_path / "secret")
    assert sorted(tmp_path.rglob("*")) == before


def test_existing_output_is_refused_before_the_data_are_read(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="--overwrite"):
        release(tmp_path / "no such spec.toml", tmp_path / "out")


def test_clusters_are_refused_before_any_fit(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = small_survey()
    frame["psu"] = np.arange(len(frame)) // 8
    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", None)
    spec = make_spec(frame, survey='psu = "psu"', synthesizer='model = "normal"')
    with pytest.raises(InputError, match=r"survey\.psu: .*'noisy_statistics'.*design_effect"):
        release(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_declared_design_effect_is_in_every_file(make_spec: MakeSpec, tmp_path: Path) -> None:
    frame = small_survey()
    frame["psu"] = [f"{number:03d}" for number in np.arange(len(frame)) // 8]
    spec = make_spec(
        frame, survey='psu = "psu"\ndesign_effect = 1.6', synthesizer='model = "normal"'
    )
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release"
    record = json.loads((folder / "privacy.json").read_text())
    assert record["settings"]["clusters"] == {
        "column": "psu", "units": 90, "strata": 3, "df_design": 87, "effects": False,
        "design_effect": 1.6,
    }  # fmt: skip
    told = " ".join([*record["statement"], *record["assumptions"], *record["not_covered"]])
    assert "the design effect of clustering, 1.6, declared" in told
    assert "of single records, not of primary sampling units (psu)" in told
    assert "share an effect" not in told
    readme = (folder / "README.md").read_text()
    for words in ("a design effect of 1.6:", "V is multiplied by it", "over all n_h records",
                  "at most the design's 87 (primary"):
        assert words in readme
    assert "within each primary sampling unit" not in readme
    assert "declared design effect of 1.6" in (folder / "tables" / "means.html").read_text()
    table = pd.read_csv(folder / "tables" / "means.csv")
    assert (table["df_design"] == 87).all()
    # Codes of PSUs as in the survey file, zeros and all.
    data = pd.read_csv(folder / "microdata" / "draw_01_rep_01.csv", dtype={"psu": str})
    pd.testing.assert_series_equal(
        data.groupby(["field", "psu"]).size(), frame.groupby(["field", "psu"]).size()
    )
    columns = json.loads((folder / "codebook.json").read_text())["columns"]
    assert {each["name"]: each["roles"] for each in columns}["psu"] == ["psu"]
    loaded = load_spec(spec)
    lines = " ".join(
        map(str, preview_lines(loaded, read_survey(loaded).design, get_model("normal")))
    )
    assert "90 primary sampling units (psu), 87 degrees of freedom; no effects" in lines
    assert "square root of the declared design effect of 1.6" in lines
    assert "30 of 30 labels of units occur in several strata" in lines
    frame["psu"] = frame["field"] + frame["psu"]
    loaded = load_spec(make_spec(frame, survey='psu = "psu"\ndesign_effect = 1.6'))
    lines = " ".join(
        map(str, preview_lines(loaded, read_survey(loaded).design, get_model("normal")))
    )
    assert "90 primary" in lines
    assert "labels" not in lines


def test_seed_zero_is_a_seed(make_spec: MakeSpec, tmp_path: Path) -> None:
    result = release(make_spec(), tmp_path / "out", seed=0)
    record = json.loads((tmp_path / "out" / "release" / "privacy.json").read_text())
    assert (record["test"], record["private"]) == (True, False)
    assert any("TEST RUN" in str(warning) for warning in result.warnings)


def test_intervals_have_the_level_asked_for(make_spec: MakeSpec, tmp_path: Path) -> None:
    from scipy.stats import t

    release(make_spec(survey=RATIO, tables="level = 0.8"), tmp_path / "out")
    table = pd.read_csv(tmp_path / "out" / "release" / "tables" / "means.csv")
    half = t.ppf(0.9, table["df"]) * table["se"]
    np.testing.assert_allclose(table["ci_upper"], table["estimate"] + half, rtol=1e-9)
    np.testing.assert_allclose(table["ci_lower"], table["estimate"] - half, rtol=1e-9)
