"""Releases by noisy statistics, as their user makes them.

Truth: the README's programs, which share no code with the estimates; published files alone, from
which everything is made again; the survey in another order; planted extremes; basic composition."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.cli import main
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import epsilon_of, rho_of
from surveysynth.release.pipeline import rebuild, release
from surveysynth.release.reader import read_release
from tests.release.documents.test_readme_programs import published, results, run_python
from tests.surveys import MakeSpec, clustered_survey, lonely_survey, small_survey

RATIO = "population_size = 30000"
SALARY = "[outcomes.salary]\ncenter = 22000\nspread = 0.45"
STRICT = 'mechanism = "noisy_statistics"\nepsilon = 10.8\nm = 10\nreplicates_per_draw = 1'
SMALL_MODEL = "predictors = 'field + gender'"
#: Noise is fitted again with longer chains where these do not converge; the pseudo-posterior, whose
#: weights go with its draws, is not: without a seed its fits have the usual length.
PLAIN = f"chains = 8\ndraws = 60\nwarmup = 60\n{SMALL_MODEL}"
SHORT = f"{PLAIN}\ninference = 'debiased'"  # the default, which keeps the fixture from another


def strict_spec(make_spec: MakeSpec, frame: pd.DataFrame | None = None, **lines: str) -> Path:
    given = {"survey": RATIO, "synthesizer": SHORT, "privacy": STRICT, "labels": SALARY, **lines}
    return make_spec(frame, **given)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("lines", "frame"),
    [
        ({}, small_survey()),
        ({"survey": 'fpc = "fraction"', "labels": f"{SALARY}\n[outcomes.weight]\ncenter = 4.0"},
         small_survey()),
        ({"synthesizer": f"model = 'fbp'\n{SHORT}"}, small_survey()),
        ({"synthesizer": f"model = 'normal'\n{SHORT}", "data": "survey.parquet"}, small_survey()),
        ({"survey": f'{RATIO}\nlonely_psu = "adjust"'}, lonely_survey()),
        ({"survey": f'{RATIO}\npsu = "school"'}, clustered_survey()),
        ({"survey": f'{RATIO}\npsu = "school"\ndesign_effect = 2.5'}, clustered_survey()),
    ],
    ids=["fbs", "fpc", "fbp", "normal", "lonely", "clusters", "design effect"],
)  # fmt: skip
def test_programs_and_rebuilding_give_what_is_published(
    make_spec: MakeSpec,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    lines: dict[str, str],
    frame: pd.DataFrame,
) -> None:
    if lines:  # chains are run for the first case; the others are about files
        request.getfixturevalue("stand_in_posterior")
    spec = strict_spec(make_spec, frame, **lines)
    out = release(spec, tmp_path / "out", seed=2).out / "release"
    expected = published(out)
    assert run_python(out) == pytest.approx(expected, rel=1e-9)
    # Nothing but the published folder is there any more.
    alone = tmp_path / "downloaded"
    shutil.move(out, alone)
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(spec.parent)
    made = rebuild(alone, tmp_path / "again")
    assert made.different == ()
    assert len(made.same) == 6
    for name in made.same:
        assert (made.out / name).read_bytes() == (alone / name).read_bytes()
    for numbers in results(alone, r="data" not in lines):  # R reads no parquet files by itself
        assert numbers == pytest.approx(expected, rel=1e-9)


@pytest.mark.usefixtures("stand_in_posterior", "stand_in_mechanism")
def test_all_datasets_give_the_printed_numbers(make_spec: MakeSpec, tmp_path: Path) -> None:
    """By a program of the README, by ``combine``, and as one file; one dataset a draw is near."""
    several = f"{STRICT[: STRICT.rindex('=')]}= 3"
    spec = strict_spec(make_spec, privacy=several, tables='statistics = ["mean", "count"]')
    out = release(spec, tmp_path / "out", seed=2).out / "release"
    made = rebuild(out, tmp_path / "again", all_datasets=True)
    assert made.different == ()
    shutil.copy(out / "README.md", made.out)
    for numbers in results(made.out):
        assert numbers == pytest.approx(published(out), rel=1e-9)
    assert run_python(out) != pytest.approx(published(out), rel=1e-6)
    released = read_release(out)
    by = {"by": ["field", "gender"]}
    tables = released.combine(["mean", "count"], microdata=made.out / "microdata", **by)
    for statistic, stem in (("mean", "means"), ("count", "counts")):
        for column in ("estimate", "se"):
            np.testing.assert_allclose(
                tables[statistic][column], released.tables[stem][column], rtol=1e-10
            )
    near = released.combine(["mean"], **by)["mean"]
    assert not np.allclose(near["estimate"], released.tables["means"]["estimate"], rtol=1e-6)
    files = sorted((made.out / "microdata").glob("*.csv"))
    stacked = pd.concat([pd.read_csv(path, dtype={"field": str}) for path in files])
    assert len(files) == 30
    rows = stacked[(stacked["field"] == "b") & (stacked["gender"] == "m")]
    own = released.tables["means"].query("field == 'b' and gender == 'm'")["estimate"].iloc[0]
    assert np.average(rows["salary"], weights=rows["weight"]) == pytest.approx(own, rel=1e-10)


def test_the_programs_recompute_a_count_closely(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = strict_spec(make_spec, tables='statistics = ["count"]')
    out = release(spec, tmp_path / "out", seed=2).out / "release"
    (value, error), expected = run_python(out), published(out)
    assert value == pytest.approx(expected[0], rel=1e-9)
    assert error == pytest.approx(expected[1], rel=0.05)
    # The rule of partial synthesis would be far off.
    text = (out / "README.md").read_text()
    assert "law of total variance" in text
    data = [pd.read_csv(path) for path in sorted((out / "microdata").glob("*.csv"))]
    counts = [each.loc[(each.field == "a") & (each.gender == "f"), "weight"].sum() for each in data]
    assert np.std(counts, ddof=1) / np.sqrt(len(counts)) < 0.7 * expected[1]


@pytest.mark.usefixtures("stand_in_posterior")
def test_the_order_of_the_records_leaves_no_trace(make_spec: MakeSpec, tmp_path: Path) -> None:
    frame = small_survey()
    shuffled = frame.sample(frac=1.0, random_state=4)
    made = []
    for name, each in (("one", frame), ("two", shuffled)):
        spec = strict_spec(make_spec, each)
        made.append(files_of(release(spec, tmp_path / name, seed=5).out / "release"))
    assert made[0] == made[1]
    other = files_of(release(spec, tmp_path / "three", seed=6).out / "release")
    assert other["statistics.json"] != made[0]["statistics.json"]


@pytest.mark.usefixtures("stand_in_posterior")
def test_fresh_noise_every_time_and_a_seed_is_a_test(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = strict_spec(make_spec)
    records = []
    for name, seed in (("a", None), ("b", None), ("c", 1)):
        out = release(spec, tmp_path / name, seed=seed).out / "release"
        statistics = json.loads((out / "statistics.json").read_text())
        records.append((statistics, json.loads((out / "privacy.json").read_text())))
    crosses = [statistics["statistics"]["cross"] for statistics, _ in records]
    assert crosses[0] != crosses[1]
    assert [statistics["statistics"]["noise"] for statistics, _ in records] == [
        "system", "system", "seeded"
    ]  # fmt: skip
    assert [privacy["private"] for _, privacy in records] == [True, True, False]
    privacy = records[0][1]
    assert privacy["guarantee"] == "zero-concentrated differential privacy"
    assert privacy["rho"] == rho_of(10.8, 1e-6)
    assert (privacy["epsilon"], privacy["delta"]) == (10.8, 1e-6)
    assert privacy["settings"]["spreads"] == {"salary": 0.45, "learned weight": 1.0}
    assert "asymptotic differential privacy" not in json.dumps(privacy)
    assert "risk" not in privacy
    assert "lipschitz_bound" not in privacy


SLOW = pytest.mark.slow  # chains are run three times over where residuals have hardly any spread


@pytest.mark.parametrize(
    "kind",
    ["far", *(pytest.param(k, marks=SLOW) for k in ("constant", "determined", "tiny weights"))],
)
def test_every_valid_survey_is_answered(make_spec: MakeSpec, tmp_path: Path, kind: str) -> None:
    """What the pseudo-posterior refuses by looking at the values is released here."""
    frame = small_survey()
    if kind == "constant":
        frame["salary"] = 22_000.0
    elif kind == "far":
        frame.loc[:20, "salary"] = 1e300
    elif kind == "determined":
        frame["weight"] = frame["field"].map({"a": 20.0, "b": 30.0, "c": 80.0})
    else:
        frame["weight"] = 1e-300
    out = release(strict_spec(make_spec, frame), tmp_path / "out", seed=2).out
    table = pd.read_csv(out / "release" / "tables" / "means.csv")
    assert np.isfinite(table["estimate"]).all()
    realised = json.loads((out / "confidential" / "realised.json").read_text())
    assert realised["records"] == len(frame)
    least = 21 if kind == "far" else 0
    assert least <= realised["clipped_records"] < least + 20
    outside = realised["amounts_outside_range"]["weight"]
    assert outside == (len(frame) if kind == "tiny weights" else 0)


@pytest.mark.usefixtures("stand_in_posterior", "stand_in_mechanism")
def test_the_ledger_keeps_two_currencies(make_spec: MakeSpec, tmp_path: Path) -> None:
    confidential = tmp_path / "confidential"
    strict = strict_spec(make_spec)
    for name in ("one", "two"):
        ledger = release(strict, tmp_path / name, confidential=confidential).ledger
    rho = 2 * rho_of(10.8, 1e-6)
    assert ledger.rho == pytest.approx(rho)
    assert (ledger.runs, ledger.epsilon, ledger.strict_runs) == (0, 0.0, 2)
    (sentence,) = ledger.sentences()
    assert f"{rho:.6g} in 2 runs (epsilon {epsilon_of(rho, 1e-6):.4g}" in sentence
    other = make_spec(synthesizer=SMALL_MODEL)  # the same data, by the pseudo-posterior
    ledger = release(other, tmp_path / "three", confidential=confidential).ledger
    assert (ledger.runs, ledger.strict_runs) == (1, 2)
    assert ledger.rho == pytest.approx(rho)
    assert any("two currencies" in sentence for sentence in ledger.sentences())


@pytest.mark.usefixtures("stand_in_posterior")
def test_a_budget_in_rho(make_spec: MakeSpec, tmp_path: Path) -> None:
    privacy = STRICT.replace("epsilon = 10.8", "rho = 0.5\ndelta = 1e-8")
    out = release(strict_spec(make_spec, privacy=privacy), tmp_path / "out", seed=2).out
    record = json.loads((out / "release" / "privacy.json").read_text())
    assert record["rho"] == 0.5
    assert record["epsilon"] == epsilon_of(0.5, 1e-8)


def test_models_without_such_statistics_are_refused(make_spec: MakeSpec, tmp_path: Path) -> None:
    frame = small_survey().assign(visits=np.arange(240) % 7)
    spec = strict_spec(
        make_spec, frame, synthesizer=f"model = 'poisson'\n{SHORT}",
        labels="[outcomes.salary]\ncenter = 3\nspread = 1",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"poisson.*fbs"):
        release(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def edited(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "statistics.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.usefixtures("stand_in_posterior", "stand_in_mechanism")
def test_rebuilding_tells_what_differs_and_refuses_what_it_cannot(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = strict_spec(make_spec)
    out = release(spec, tmp_path / "out", seed=2).out
    assert main(["rebuild", str(out), "--out", str(tmp_path / "again")]) == 0
    assert "byte by byte: 6." in capsys.readouterr().out
    assert main(["rebuild", str(out), "--out", str(tmp_path / "again")]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["rebuild", str(out), "--out", str(tmp_path / "again"), "--overwrite"]) == 0
    capsys.readouterr()

    def other_seed(content: dict[str, Any]) -> None:
        content["seed"] = "1"

    edited(out / "release", other_seed)
    assert main(["rebuild", str(out), "--out", str(tmp_path / "third")]) == 0
    assert "Not equal: tables/" in capsys.readouterr().out
    for break_it in (
        lambda content: content.pop("seed"),
        lambda content: content["statistics"].pop("cross"),
        lambda content: content["specification"].pop("survey"),
        lambda content: content.clear(),
    ):
        broken = tmp_path / "broken"
        shutil.copytree(out, broken)
        edited(broken / "release", break_it)
        assert main(["rebuild", str(broken), "--out", str(tmp_path / "none")]) == 2
        assert "statistics" in capsys.readouterr().err
        assert not (tmp_path / "none").exists()
        shutil.rmtree(broken)
    plain = release(make_spec(synthesizer=PLAIN), tmp_path / "plain", seed=1).out
    assert main(["rebuild", str(plain), "--out", str(tmp_path / "none")]) == 2
    assert "statistics.json" in capsys.readouterr().err


@pytest.mark.usefixtures("stand_in_posterior")
@pytest.mark.parametrize("content", [b"no such file", None])
def test_rebuilding_tells_of_damaged_microdata(
    make_spec: MakeSpec, tmp_path: Path, content: bytes | None
) -> None:
    out = release(strict_spec(make_spec, tables='microdata = "dta"'), tmp_path / "out", seed=2).out
    (first,) = (out / "release" / "microdata").glob("draw_01_rep_01.dta")
    if content is None:
        first.unlink()
    else:
        first.write_bytes(content)
    with pytest.raises(InputError, match=first.name):
        rebuild(out, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"labels": "[outcomes.salary]\ncenter = 22000"}, "outcomes.salary: spread missing"),
        ({"labels": ""}, "center and spread missing"),
        ({"labels": "[outcomes.salary]\ncenter = 1\nspread = 0"}, "spread: expected a number"),
        ({"labels": "[outcomes.salary]\ncenter = -1\nspread = 1"},
         "at which log(salary) is defined"),
        ({"labels": f"{SALARY}\n[outcomes.weight]\ncenter = 245"}, "give its logarithm"),
        ({"labels": f"{SALARY}\n[outcomes.wages]\ncenter = 2"}, "does not name it"),
        ({"survey": ""}, "outcomes.weight.center: missing"),
        ({"privacy": f"{STRICT}\ndelta = 1.0"}, "delta: expected a number less than 1"),
        ({"privacy": f"{STRICT}\nrho = 0.5"}, "rho and epsilon: give one of them"),
        ({"privacy": STRICT.replace("m = 10", "m = 9")}, "at least 10 draws, got 9"),
        ({"privacy": f"{STRICT}\nrisk = 'none'"}, "risk: only for mechanism = 'pseudo_posterior'"),
        ({"privacy": f"{STRICT}\nprotect = 'household'"}, "expected 'record' or a public column"),
        ({"privacy": "protect = 'field'"}, "protects single records"),
        ({"privacy": "delta = 1e-5"}, "delta: only for mechanism = 'noisy_statistics'"),
        ({"synthesizer": f"{SHORT}\nengine = 'cmdstan'"}, "engine: 'cmdstan' is for"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_and_nothing_written(
    make_spec: MakeSpec, tmp_path: Path, lines: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        release(strict_spec(make_spec, **lines), tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("column", "value"), [("salary", -1.0), ("weight", 0.0)])
def test_an_invalid_value_is_bad_input_and_not_quoted(
    make_spec: MakeSpec, tmp_path: Path, column: str, value: float
) -> None:
    frame = small_survey()
    frame.loc[5, column] = value
    with pytest.raises(InputError) as caught:
        release(strict_spec(make_spec, frame), tmp_path / "out")
    assert "1 record" in str(caught.value)
    assert str(value) not in str(caught.value)
    assert not (tmp_path / "out").exists()
