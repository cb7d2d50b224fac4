"""Releases with public weights, as their user makes them, under both mechanisms.

Truth: the README's programs, which share no code with the estimates; published files alone, from
which tables are made again; sums of the survey file by pandas; what must be told, listed here."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.api.commands import adequacy
from surveysynth.cli import main
from surveysynth.config.build import read_design
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.release.pipeline import rebuild, release
from tests.release.documents.test_readme_programs import assert_recomputes
from tests.release.test_strict_release import SHORT as STRICT_PLAN
from tests.release.test_strict_release import strict_spec
from tests.surveys import NOISY, MakeSpec, small_survey

SIZES = "weights = 'public'\nweight = 'weight'"
STRATA = "weights = 'public'\npopulation_size = { a = 8000, b = 10000.5, c = 80 }"
SHORT = "chains = 4\ndraws = 250\nwarmup = 100\npredictors = 'field + gender'"
QUICK = "epsilon = 60\nm = 2\nreplicates_per_draw = 2"


def frame_of(survey: str) -> pd.DataFrame:
    """The survey file; without a column of weights where the strata make them."""
    frame = small_survey()
    return frame.drop(columns="weight") if "population_size" in survey else frame


def counts_by_pandas(survey: str) -> tuple[pd.Series, pd.Series]:
    """By field and gender."""
    frame = frame_of(survey)
    if "population_size" in survey:
        size = frame["field"].map({"a": 8000, "b": 10000.5, "c": 80})
        frame["weight"] = size / frame.groupby("field")["salary"].transform("size")
    return frame.groupby(["field", "gender"])["weight"].sum(), frame["weight"]


def assert_counts(out: Path, survey: str) -> None:
    table = pd.read_csv(out / "tables" / "counts.csv")
    cells = table[~table["is_margin"]].set_index(["field", "gender"])["estimate"]
    expected, weight = counts_by_pandas(survey)
    np.testing.assert_allclose(cells[expected.index], expected, rtol=1e-13)
    assert table["estimate"][0] == pytest.approx(weight.sum(), rel=1e-13)
    assert table["se"].notna().all()
    assert np.isfinite(table[["df", "ci_lower", "ci_upper"]]).all(axis=None)


@pytest.mark.parametrize("survey", [SIZES, STRATA], ids=["column", "sizes"])
@pytest.mark.parametrize("strict", [False, True])
def test_files_of_a_release(
    make_spec: MakeSpec, tmp_path: Path, request: pytest.FixtureRequest, survey: str, strict: bool
) -> None:
    if survey == STRATA:  # the mechanisms themselves run for the column of weights
        request.getfixturevalue("stand_in_posterior" if strict else "stand_in_mechanism")
    frame = frame_of(survey)
    if strict:
        spec = strict_spec(make_spec, frame, survey=survey)
    else:
        spec = make_spec(frame, survey=survey, synthesizer=SHORT, privacy=QUICK)
    if "population_size" in survey:
        spec.write_text(spec.read_text().replace('weight = "weight"\n', ""))
    out = release(spec, tmp_path / "out", seed=2).out / "release"
    assert_counts(out, survey)
    assert_recomputes(out, r=True)
    # The weight is a public column, the same in every file; the outcome is all that is synthetic.
    files = sorted((out / "microdata").iterdir())
    data = [pd.read_csv(file) for file in files]
    assert all((each["weight"] == data[0]["weight"]).all() for each in data)
    assert sorted(data[0]["weight"]) == pytest.approx(sorted(counts_by_pandas(survey)[1]))
    assert not any(name.endswith("for_variance") for name in data[0])
    codebook = json.loads((out / "codebook.json").read_text())
    columns = {each["name"]: each for each in codebook["columns"]}
    assert codebook["synthetic_columns"] == ["salary"]
    assert columns["weight"]["source"] == "public"
    assert "weight" in columns["weight"]["roles"]
    assert "sums to the public" not in json.dumps(codebook)
    privacy = json.loads((out / "privacy.json").read_text())
    assert privacy["settings"]["sampling_weights"] == "public"
    assert any("sampling weights (weight)" in each for each in privacy["assumptions"])
    dossier = (out / "dossier.md").read_text()
    for gone in ("outcome and sampling w", "outcomes and sampling w", "log weight", "smoothed"):
        assert gone not in dossier + (out / "README.md").read_text()
    assert "differ in the outcome" in dossier
    if "population_size" in survey:
        assert "a: 8,000, b: 10,000.5, c: 80" in dossier
        assert columns["sampling_fraction"]["roles"] == ["fpc"]
    else:  # the weight varies within cells of X
        assert privacy["settings"]["formula"].startswith("field + gender + log(weight / ")
    if strict:
        statistics = json.loads((out / "statistics.json").read_text())["statistics"]
        assert len(statistics["centre"]) == 1
        again = rebuild(out, tmp_path / "again")
        assert again.different == ()
        assert len(again.same) == 6


@pytest.mark.parametrize(
    ("model", "strict"),
    [("normal", False), ("normal", True), ("poisson", False), ("negative_binomial", False)],
)  # fmt: skip
def test_every_model_takes_them(
    make_spec: MakeSpec, tmp_path: Path, model: str, strict: bool
) -> None:
    frame = small_survey()
    if model in ("poisson", "negative_binomial"):
        frame["salary"] = np.floor(frame["salary"] / 5000)
    if strict:
        lines = {"survey": SIZES, "synthesizer": f"model = '{model}'\n{STRICT_PLAN}"}
        spec = strict_spec(make_spec, frame, **lines)
    else:
        privacy = 'risk = "none"\nm = 2\nreplicates_per_draw = 1'
        given = f"model = '{model}'\n{SHORT}"
        spec = make_spec(frame, survey=SIZES, synthesizer=given, privacy=privacy)
    out = release(spec, tmp_path / "out", seed=1).out / "release"
    assert_counts(out, SIZES)
    means = pd.read_csv(out / "tables" / "means.csv")
    weight = frame["weight"]
    whole = (weight * frame["salary"]).sum() / weight.sum()
    assert abs(means["estimate"][0] - whole) < 4 * means["se"][0]


@pytest.mark.slow  # each record is a cell of its own
def test_outcomes_of_other_kinds_and_rows_by_one_of_them(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    """The general location model without a log weight: parts that depend on each other."""
    rng, frame = np.random.default_rng(4), small_survey(600, seed=3)
    n = len(frame)
    works = rng.random(n) < np.where(frame["gender"] == "f", 0.75, 0.45)
    none = rng.random(n) < np.where(works, 0.7, 0.3)
    frame["works"] = np.where(works, "yes", "no")
    frame["benefit"] = np.where(none, 0.0, np.exp(rng.normal(6.0, 0.5, n)))
    spec = make_spec(
        frame, survey=SIZES, privacy=NOISY + "epsilon = 50",
        tables='by = ["gender", "works"]\nstatistics = ["count", "mean", "share"]',
        labels='[outcomes.works]\nkind = "binary"\nlevels = ["no", "yes"]\n'
        '[outcomes.benefit]\nkind = "semicontinuous"\nspikes = [0]\ncenter = 400\nspread = 0.5',
    )  # fmt: skip
    spec.write_text(spec.read_text().replace('outcome = "salary"\n', ""))
    result = release(spec, tmp_path / "out", seed=5)
    out = result.out / "release"
    counts, means, shares = (
        pd.read_csv(out / "tables" / f"{name}.csv").set_index(["gender", "works"])
        for name in ("counts", "means", "shares")
    )
    # By public columns alone a count is the sample's own, by the outcome it varies and adds up.
    of_gender = frame.groupby("gender")["weight"].sum()
    assert counts["estimate"].loc[("f", "All")] == pytest.approx(of_gender["f"], rel=1e-12)
    both = counts["estimate"].loc[[("f", "no"), ("f", "yes")]].sum()
    assert both == pytest.approx(of_gender["f"], rel=1e-12)
    by_sample = frame.groupby(["gender", "works"])["weight"].sum()
    for cell, weight in by_sample.items():
        row = counts.loc[cell]
        assert row["estimate"] != pytest.approx(weight, rel=1e-9)
        assert abs(row["estimate"] - weight) < 4 * row["se"]
        inside = (frame["gender"] == cell[0]) & (frame["works"] == cell[1])
        mean = np.average(frame["benefit"][inside], weights=frame["weight"][inside])
        assert abs(means["estimate"].loc[cell] - mean) < 4 * means["se"].loc[cell]
        spike = np.average(frame["benefit"][inside] == 0, weights=frame["weight"][inside])
        of_cell = shares.loc[cell].set_index("level")
        assert of_cell["estimate"].sum() == pytest.approx(1.0, rel=1e-12)
        assert abs(of_cell["estimate"].loc["0"] - spike) < 4 * of_cell["se"].loc["0"]
    readme = (out / "README.md").read_text()
    assert "counts by public columns are those of the sample itself" in readme
    dossier = " ".join((out / "dossier.md").read_text().split())
    assert "number of units in a row by public columns follows from public values" in dossier
    # Beside the sample: counts by public columns are the same in both.
    assert adequacy(result.out).rows > 0
    rows = pd.read_csv(result.confidential / "adequacy.csv").set_index("statistic")
    public = rows.loc["count"][rows.loc["count", "works"] == "All"]
    assert public["difference"].abs().max() < 1e-6 or public["difference"].isna().all()
    with pytest.raises(InputError, match="models selection by confidential weights"):
        get_model("fbp").under_noise().of(read_design(load_spec(spec)))


def test_check_tells_the_expected_errors(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(strict_spec(make_spec, survey=SIZES)), "--verbose"]) == 0
    said = capsys.readouterr().out
    line = "Weight: weight, public: used and published unchanged. log(weight) is a predictor"
    assert line in said
    assert "No outcome was read" in said
    assert "log weight" not in said
    # Public weights are exact in every dataset, so that counts have the sample's own errors.
    assert re.search(r"\n    count: 1\.00 in the median of \d+ rows \(1\.00 to 1\.00\)", said)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"synthesizer": "model = 'fbp'", "survey": f"{SIZES}\npopulation_size = 1e6"},
         "use 'fbs'"),
        ({"survey": SIZES, "labels": "[outcomes.weight]\ncenter = 3.0"}, "leave it out"),
        ({"survey": "weights = 'open'"}, "'confidential', 'public' or 'release:PATH'"),
        ({"survey": STRATA}, "remove one of the two"),
        ({"survey": "population_size = { a = 10 }"}, "set weights = 'public'"),
        ({"survey": "weights = 'public'\npopulation_size = { a = 0 }"}, "greater than 0"),
        ({"survey": "weights = 'public'\npopulation_size = { a = 'x' }"}, "got 'x' for 'a'"),
    ],
)  # fmt: skip
def test_mistakes_of_a_specification_are_named(
    make_spec: MakeSpec, lines: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_spec(make_spec(**lines))
    assert words in str(caught.value)
