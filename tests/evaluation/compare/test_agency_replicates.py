"""Standard errors of the sample by replicate weights that an agency supplies.

Truth: R's ``svrepdesign`` with svytotal, svymean and svyby, and ``calibrate`` of it, to 1e-8
(``golden/agency_replicates.R``); the bytes of releases with and without replicate weights.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.build import model_of, read_design, read_survey
from surveysynth.config.spec import load_spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.estimation.replication import replication_scale
from surveysynth.evaluation.compare.tables import sample_tables
from surveysynth.release.check import preview_lines
from surveysynth.release.pipeline import release
from tests.surveys import small_survey, spec_text, write_survey

GOLDEN = Path(__file__).parents[2] / "golden"
GIVEN = json.loads((GOLDEN / "agency_replicates.json").read_text())
CASES = {case["name"]: case for case in GIVEN["cases"]}
KEYS = {"count": ("count", None), "total": ("total", "y"), "mean": ("mean", "y"),
        "proportion": ("proportion", "z")}  # fmt: skip


DESIGN = 'strata = "stratum"\npsu = "psu"'
#: What a release would need; none is made.
NOISY = {
    "privacy": 'mechanism = "noisy_statistics"',
    "synthesizer": 'outcome = ["y", "z"]',
}
OUTCOMES = """
[outcomes.y]
transform = "log"
centre = 10
spread = 1
[outcomes.z]
transform = "identity"
centre = 0.5
spread = 0.5
[outcomes.weight]
range = [1, 1000]
"""


def keys_of(case: dict[str, Any]) -> str:
    """The keys of [survey] for a case."""
    factor = "" if case["fay"] is None else f"({case['fay']})"
    lines = ['replicate_weights = "rep*"', f'replicate_method = "{case["method"]}{factor}"']
    if case["rscales"] is not None:
        lines.append(f"replicate_scale = {case['rscales']}")
    return "\n".join(lines)


def tables_of(tmp_path: Path, case: dict[str, Any], more: str = "") -> Any:
    """The sample's tables under the replicate weights of a case."""
    frame = pd.read_csv(GOLDEN / "taylor_survey.csv", dtype=str)
    columns = np.array(case["columns"])
    for r in range(columns.shape[1]):
        frame[f"rep{r + 1}"] = columns[:, r]
    text = spec_text(
        survey=f'{DESIGN}\n{keys_of(case)}', **NOISY,
        tables='by = ["b"]\nstatistics = ["count", "total", "mean", "proportion"]',
    )
    spec = load_spec(write_survey(tmp_path / "in", frame, text + OUTCOMES + more))
    return sample_tables(spec, read_survey(spec))


@pytest.mark.parametrize("name", list(CASES))
def test_errors_are_those_of_svrepdesign(tmp_path: Path, name: str) -> None:
    made = tables_of(tmp_path, CASES[name])
    for statistic, truth in CASES[name]["estimate"]["plain"].items():
        table = made[KEYS[statistic]]
        np.testing.assert_allclose(table["estimate"], truth["estimate"], rtol=1e-8)
        np.testing.assert_allclose(table["se"], truth["se"], rtol=1e-8)
    df = CASES[name]["estimate"]["df"]
    mean, t = made["mean", "y"], (made["mean", "y"]["ci_upper"] - made["mean", "y"]["estimate"])
    from scipy.stats import t as student

    np.testing.assert_allclose(t, student.ppf(0.975, df) * mean["se"], rtol=1e-8)


@pytest.mark.parametrize("name", ["fay", "jkn", "bootstrap"])
def test_replicates_are_calibrated_like_the_weight(tmp_path: Path, name: str) -> None:
    size = GIVEN["population"]["(Intercept)"]
    b2, z = GIVEN["population"]["bb2"], GIVEN["population"]["z"]
    margins = (
        f'[[calibration]]\nby = ["b"]\ntotals = {{ b1 = {size - b2!r}, b2 = {b2!r} }}\n'
        f'[[calibration]]\namount = "z"\ntotals = {z!r}\n'
    )
    made = tables_of(tmp_path, CASES[name], margins)
    for statistic, truth in CASES[name]["estimate"]["calibrated"].items():
        table = made[KEYS[statistic]]
        np.testing.assert_allclose(table["estimate"], truth["estimate"], rtol=1e-8)
        error = np.abs(table["se"] - truth["se"])
        assert (error <= 1e-8 * np.abs(table["estimate"])).all(), statistic
    with_r = made["mean", "y"]["se"].to_numpy()
    plain = np.array(CASES[name]["estimate"]["plain"]["mean"]["se"])
    assert np.abs(with_r / plain - 1.0).max() > 1e-3  # rejects replicates that are not calibrated


def test_errors_are_not_those_of_strata_and_units(tmp_path: Path) -> None:
    """Rejects replicate weights that are read and not used."""
    case = CASES["successive differences"]
    with_them = tables_of(tmp_path, case)["mean", "y"]["se"]
    without = tables_of(tmp_path, {**case, "columns": case["columns"]})
    assert with_them.equals(without["mean", "y"]["se"])
    frame = pd.read_csv(GOLDEN / "taylor_survey.csv", dtype=str)
    text = spec_text(
        survey=DESIGN, **NOISY,
        tables='by = ["b"]\nstatistics = ["count", "total", "mean", "proportion"]',
    )
    spec = load_spec(write_survey(tmp_path / "other", frame, text + OUTCOMES))
    by_units = sample_tables(spec, read_survey(spec))["mean", "y"]["se"]
    assert np.abs(by_units / with_them - 1.0).max() > 0.01


def with_replicates(n: int = 4) -> pd.DataFrame:
    """A survey with n sets of replicate weights, of which a cell is blank and one is text."""
    rng = np.random.default_rng(5)
    frame = small_survey()
    for r in range(n):
        frame[f"repwt{r + 1}"] = (frame["weight"] * rng.uniform(0.5, 1.5, len(frame))).round(3)
    return frame


KEPT = 'replicate_weights = "repwt*"\nreplicate_method = "brr"'


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((folder / "tables").glob("*.csv"))}


@pytest.mark.parametrize("cell", [None, "no number"])
def test_no_release_depends_on_replicate_weights(tmp_path: Path, cell: Any) -> None:
    """Not on their values, nor on whether they are any: the same bytes as without them."""
    frame = with_replicates()
    if cell is not None:
        frame = frame.astype({"repwt2": object})
        frame.loc[3, "repwt2"] = cell
    synthesizer = 'inference = "paper"\npredictors = "field + gender"'
    privacy = 'risk = "none"\nm = 1\nreplicates_per_draw = 1'
    made = {}
    for name, survey in (("with", KEPT), ("without", "")):
        text = spec_text(survey=survey, synthesizer=synthesizer, privacy=privacy)
        spec = write_survey(tmp_path / name, frame, text)
        made[name] = release(spec, tmp_path / name / "out", seed=1).out / "release"
    assert files_of(made["with"]) == files_of(made["without"])
    micro = "microdata/draw_01_rep_01.csv"
    assert (made["with"] / micro).read_bytes() == (made["without"] / micro).read_bytes()
    for path in made["with"].rglob("*"):
        if path.is_file():
            assert b"repwt" not in path.read_bytes(), path.name
    loaded = load_spec(tmp_path / "with" / "spec.toml")
    if cell is None:
        assert (sample_tables(loaded, read_survey(loaded))["mean", "salary"]["se"] > 0).all()
        return
    for other in (cell, "", -5.0):
        frame.loc[3, "repwt2"] = other
        frame.to_csv(tmp_path / "with" / "survey.csv", index=False)
        with pytest.raises(InputError, match="got 1 other or blank cells of 960"):
            sample_tables(loaded, read_survey(loaded))
    # The report that compares is left out, and the release is there.
    found = release(tmp_path / "with" / "spec.toml", tmp_path / "again", seed=1)
    assert (found.out / "release" / "tables").is_dir()


def test_check_names_them_and_reads_none(tmp_path: Path) -> None:
    text = spec_text(survey=KEPT)
    spec = load_spec(write_survey(tmp_path / "in", with_replicates(), text))
    lines = preview_lines(spec, read_design(spec), model_of(spec))
    said = "Replicate weights: 4 columns, 'repwt1' to 'repwt4', brr."
    assert any(str(line).startswith(said) for line in lines)
    assert read_survey(spec).confidential.replicate_weights is not None
    assert "repwt1" not in read_design(spec).frame


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('replicate_weights = "repwt*"', "survey: replicate_method: missing"),
        ('replicate_method = "brr"', "replicate_method: this key needs replicate_weights"),
        ('replicate_weights = "r*"\nreplicate_method = "fay"', "'fay(0.5)'"),
        ('replicate_weights = "r*"\nreplicate_method = "fay(1)"', "'fay(0.5)'"),
        ('replicate_weights = "r*"\nreplicate_method = "jkn"', "replicate_scale: missing"),
        ('replicate_weights = "r*"\nreplicate_method = "jk9"', "'jkn'"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other(lines: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(spec_text(survey=lines))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (KEPT.replace("repwt*", "rep_*"), "'rep_*' names 0 columns of the data"),
        (KEPT.replace('"repwt*"', '["repwt1", "repwt9"]'), "the data have no column 'repwt9'"),
        (KEPT.replace('"repwt*"', '["repwt1", "salary"]'), "'salary' has another role"),
        (f"{KEPT}\nreplicate_scale = [1.0, 2.0]", "expected 4 numbers, one for each column"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, lines: str, words: str) -> None:
    spec = load_spec(write_survey(tmp_path / "in", with_replicates(), spec_text(survey=lines)))
    with pytest.raises(InputError) as caught:
        read_survey(spec)
    assert words in str(caught.value)


def test_pairs_have_the_variance_of_two_units_in_each_stratum() -> None:
    """A jackknife by pairs doubles one unit and drops the other: sum of (y_1 - y_2)^2 of totals."""
    totals = np.array([[3.0, 5.0], [10.0, 4.0], [1.0, 1.5]])
    each = totals.sum() + (totals[:, 0] - totals[:, 1])
    scale = replication_scale("jk2", len(each))
    taylor = 2.0 * ((totals - totals.mean(axis=1, keepdims=True)) ** 2).sum()
    assert scale * ((each - totals.sum()) ** 2).sum() == pytest.approx(taylor)


def test_replicate_weights_alone_take_a_design_effect_and_check_asks_for_it(
    tmp_path: Path,
) -> None:
    region = np.repeat(["n", "s"], 50)
    frame = pd.DataFrame({"region": region, "y": 10.0, "weight": 5.0, "rep1": 5.0, "rep2": 5.0})
    frame.to_csv(tmp_path / "survey.csv", index=False)
    text = """
[survey]
data = "survey.csv"
weight = "weight"
population_size = 100000
replicate_weights = "rep*"
replicate_method = "jk2"
[synthesizer]
outcome = ["y"]
[outcomes.y]
range = [0, 50]
[privacy]
mechanism = "noisy_statistics"
epsilon = 3.6
[tables]
by = ["region"]
statistics = ["count", "mean"]
"""
    told = {}
    for effect in (None, 4.0):
        more = "" if effect is None else f"[survey]\ndesign_effect = {effect}"
        spec = parse_spec(text.replace("[survey]", more or "[survey]"), tmp_path / "spec.toml")
        design = read_design(spec)
        told[effect] = "\n".join(map(str, preview_lines(spec, design, model_of(spec))))
    assert "without psu or design_effect" in told[None]
    assert "without psu or design_effect" not in told[4.0]
    assert "no column of primary sampling units" in told[4.0]
    assert "declared design effect of 4" in told[4.0]
