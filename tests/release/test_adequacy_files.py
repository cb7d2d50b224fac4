"""What a release leaves in its confidential folder of how far it lies from its sample.

Truth: every row by sums written out over the records; planted misfits; the release tree of the same
run without the look, byte for byte; listings and modes of the file system."""

import json
import re
import stat
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth import cli
from surveysynth.estimation.statistics import REPORT_COLUMNS, TABLE_COLUMNS
from surveysynth.release.figure_style import MARK
from surveysynth.release.pipeline import release as release_alone
from tests.release.test_confidentiality import assert_nothing_leaks
from tests.surveys import clustered_survey, small_survey

MakeSpec = Callable[..., Path]

FILES = {"adequacy.html", "adequacy.csv", "adequacy_shares.csv"}
SIZE = "population_size = 30000"
#: The real mechanism without protection, whose misfit is the model's alone.
OPEN = {
    "survey": SIZE,
    "synthesizer": 'predictors = "field + gender"\ninference = "debiased"',
    "privacy": 'risk = "none"\nm = 4\nreplicates_per_draw = 1',
}
STRICT = {
    "survey": SIZE,
    "synthesizer": "chains = 8\ndraws = 60\nwarmup = 60\npredictors = 'field + gender'\n"
    "inference = 'debiased'",
    "privacy": 'mechanism = "noisy_statistics"\nepsilon = 10.8\nm = 10\nreplicates_per_draw = 1',
    "labels": "[outcomes.salary]\ncentre = 22000\nspread = 0.45",
}


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip


def rows_of(out: Path) -> pd.DataFrame:
    text = {"field": str, "gender": str, "outcome": str}
    return pd.read_csv(out / "confidential" / "adequacy.csv", dtype=text)


def by_hand(
    frame: pd.DataFrame, inside: np.ndarray, statistic: str, size: float, unit: np.ndarray
) -> tuple[float, float]:
    """A row and its error: records by unit within fields, weights scaled to a known sum."""
    weight = frame["weight"].to_numpy() * size / frame["weight"].sum()
    if statistic == "count":
        value = weight[inside].sum()
        u = weight * (inside - value / size)
    else:
        total = weight[inside].sum()
        value = (weight * frame["salary"])[inside].sum() / total
        u = np.where(inside, weight * (frame["salary"].to_numpy() - value) / total, 0.0)
    squares = 0.0
    for field in np.unique(frame["field"]):
        mine = frame["field"].to_numpy() == field
        sums = pd.Series(u[mine]).groupby(unit[mine]).sum()
        squares += len(sums) * sums.var(ddof=1)
    return float(value), float(np.sqrt(squares))


@pytest.mark.usefixtures("stand_in_mechanism")
@pytest.mark.parametrize("clustered", [False, True], ids=["records", "units"])
def test_every_row_is_the_published_one_beside_the_sample_by_hand(
    make_spec: MakeSpec, tmp_path: Path, clustered: bool
) -> None:
    frame = clustered_survey() if clustered else small_survey()
    units = frame["school"].to_numpy() if clustered else np.arange(len(frame))
    # The declared design effect is for the model; the sample's errors are by unit.
    survey = f'{SIZE}\npsu = "school"\ndesign_effect = 2' if clustered else SIZE
    result = ss.release(make_spec(frame, survey=survey), tmp_path / "out")
    rows = rows_of(result.out)
    assert len(rows) == 24
    # A by column of one of these names would be lost, and is refused.
    assert set(rows) == {*TABLE_COLUMNS, *REPORT_COLUMNS, "field", "gender"} - {
        "method", "rmse", "estimate", "se", "df", "df_design", "ci_lower", "ci_upper", "flag"
    }  # fmt: skip
    published = {
        name: pd.read_csv(result.out / "release" / "tables" / f"{name}s.csv")
        for name in ("count", "mean")
    }
    compared = beyond = 0
    for statistic, of_statistic in rows.groupby("statistic"):
        table = published[str(statistic)]
        np.testing.assert_allclose(of_statistic["published"], table["estimate"], rtol=1e-12)
        np.testing.assert_allclose(of_statistic["published_se"], table["se"], rtol=1e-12)
        for row in of_statistic.to_dict("records"):
            inside = np.ones(len(frame), dtype=bool)
            for column in ("field", "gender"):
                if row[column] != "All":
                    inside &= frame[column].to_numpy() == row[column]
            value, error = by_hand(frame, inside, str(statistic), 30000.0, units)
            assert row["n"] == inside.sum()
            assert row["sample"] == pytest.approx(value, rel=1e-10)
            if error < 1e-6:  # the whole population
                assert np.isnan(row["difference"])
                continue
            assert row["sample_se"] == pytest.approx(error, rel=1e-8)
            apart = (row["published"] - value) / error
            assert row["difference"] == pytest.approx(apart, rel=1e-6)
            assert row["beyond"] == (abs(apart) > 3)
            compared += 1
            beyond += abs(apart) > 3
    assert result.adequacy is not None
    assert (result.adequacy.rows, result.adequacy.beyond) == (compared, beyond)
    assert result.adequacy.page == result.confidential / "adequacy.html"
    assert beyond > 3  # a stand-in knows nothing of the data
    if clustered:
        alone = by_hand(frame, np.ones(len(frame), dtype=bool), "mean", 3e4, np.arange(len(frame)))
        whole = rows[(rows["statistic"] == "mean") & (rows["n"] == len(frame))]
        assert whole["sample_se"].item() > 1.2 * alone[1]


def planted(kind: str) -> pd.DataFrame:
    """Salaries that a regression of logs fits, or a third of them at almost nothing."""
    frame = small_survey(1500, seed=6)
    if kind == "lump":
        rng = np.random.default_rng(7)
        lump = rng.random(1500) < 0.3
        frame["salary"] = np.where(lump, rng.uniform(0.5, 1.5, 1500), frame["salary"])
    return frame


@pytest.mark.parametrize("kind", ["right", "lump"])
def test_a_misfit_is_reported_and_a_right_model_is_not(
    make_spec: MakeSpec, tmp_path: Path, kind: str
) -> None:
    found = ss.release(make_spec(planted(kind), **OPEN), tmp_path / "out", seed=3).adequacy
    assert found is not None
    assert found.rows == 23
    means = rows_of(tmp_path / "out").query("statistic == 'mean'")["difference"].abs()
    if kind == "lump":
        assert found.beyond >= 8
        assert means.median() > 5
    else:
        assert found.beyond == 0
        assert means.median() < 1


def test_tails_and_figures_report_the_wrong_power(make_spec: MakeSpec, tmp_path: Path) -> None:
    # Cell means of a regression are right on any scale; the distribution within a cell is not.
    frame = planted("right")
    wide = np.exp(1.5 * (np.log(frame["salary"]) - 10) + 10)
    shares = {}
    for transform in ("log", "identity"):
        lines = {**OPEN, "synthesizer": f'{OPEN["synthesizer"]}\ntransform = "{transform}"'}
        spec = make_spec(frame.assign(salary=wide), **lines)
        ss.release(spec, tmp_path / transform, seed=3)
        table = pd.read_csv(tmp_path / transform / "confidential" / "adequacy_shares.csv")
        shares[transform] = table.set_index(["variable", "part"])
    low = ("salary", "below the sample's 1% quantile")
    assert shares["identity"].loc[low, "synthetic"] > 0.05  # negative salaries
    assert shares["identity"].loc[low, "difference"] > 6
    assert abs(shares["log"].loc[low, "difference"]) < 4


@pytest.mark.parametrize("lines", [OPEN, STRICT], ids=["pseudo_posterior", "noisy_statistics"])
def test_nothing_of_it_is_published_and_only_its_owner_may_read_it(
    make_spec: MakeSpec, tmp_path: Path, lines: dict[str, str]
) -> None:
    frame = small_survey(600)
    spec = make_spec(frame, **lines, tables='formats = ["csv", "html", "markdown"]')
    said: list[str] = []
    looked = ss.release(spec, tmp_path / "looked", seed=2, progress=said.append)
    plain_stages: list[str] = []
    release_alone(spec, tmp_path / "plain", seed=2, progress=plain_stages.append)
    # Without the look the same run publishes the same bytes, and says the same.
    assert files_of(tmp_path / "looked/release") == files_of(tmp_path / "plain/release")
    assert said == plain_stages
    confidential = looked.confidential
    own = set(files_of(confidential)) - set(files_of(tmp_path / "plain/confidential"))
    assert own == FILES
    assert stat.S_IMODE(confidential.stat().st_mode) == 0o700
    for name in FILES:
        assert stat.S_IMODE((confidential / name).stat().st_mode) == 0o600
    rows = rows_of(looked.out).dropna(subset="difference")  # without the public total
    shares = pd.read_csv(confidential / "adequacy_shares.csv")
    numbers = np.concatenate([
        rows[["sample", "sample_se", "difference"]].to_numpy().ravel(),
        shares[["sample", "sample_se", "difference"]].to_numpy().ravel(),
    ])  # fmt: skip
    numbers = np.abs(numbers[np.isfinite(numbers)])
    forbidden = np.array([each for each in numbers if float(f"{each:.5g}") != each])
    assert forbidden.size > 50
    assert_nothing_leaks(tmp_path / "looked/release", forbidden)
    for content in files_of(tmp_path / "looked/release").values():
        assert b"adequa" not in content


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_strict_mechanism_tells_how_many_records_were_clipped(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    frame = small_survey(600)
    frame["salary"] = np.where(np.arange(600) % 20 == 0, 3e6, frame["salary"])  # 30 far outside
    result = ss.release(make_spec(frame, **STRICT), tmp_path / "out", seed=2)
    clipped = json.loads((result.confidential / "realised.json").read_text())["clipped_records"]
    assert 30 <= clipped <= 60
    page = (result.confidential / "adequacy.html").read_text()
    assert f"{clipped} of 600 records ({clipped / 600:.1%}) lie outside the ball" in page
    assert "Normal records with the declared centres and spreads would do so in 0.5% of" in page


@pytest.mark.usefixtures("stand_in_mechanism")
def test_the_page_needs_nothing_else_and_says_what_it_is(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    title = 'title = "<script>alert(1)</script> & more"'
    spec = make_spec(survey=SIZE, tables=f'{title}\nflags = "nchs"\nflag_action = "suppress"')
    result = ss.release(spec, tmp_path / "out")
    assert result.adequacy is not None
    text = (result.confidential / "adequacy.html").read_text()
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    assert "link" not in tags
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 2
    assert all(MARK in str(each["alt"]) for each in images)
    shown = " ".join(page.text)
    assert shown.count(MARK) >= 2
    assert "<script>alert(1)</script> & more" in shown
    assert "epsilon does not cover it" in shown
    rows = rows_of(result.out)
    # What a release withholds is not compared.
    assert result.adequacy.rows == rows["difference"].count() <= rows["published"].count()
    assert f"{result.adequacy.beyond} of {result.adequacy.rows} rows lie more than 3" in shown
    marks = [each for tag, each in page.tags if tag == "sup"]
    assert len(marks) == result.adequacy.beyond > 0  # a stand-in knows nothing of the data


@pytest.mark.usefixtures("stand_in_mechanism")
def test_the_terminal_has_one_line_that_differs_in_its_counts_alone(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told, logs = [], []
    frame = small_survey()
    for number, factor in enumerate((1.0, 7.0)):
        spec = make_spec(frame.assign(salary=frame["salary"] * factor), survey=SIZE)
        out = tmp_path / f"run{number}"
        assert cli.main(["release", str(spec), "--out", str(out)]) == 0
        captured = capsys.readouterr()
        (line,) = [each for each in captured.out.splitlines() if "rows lie" in each]
        rows = rows_of(out)
        counts = f"{int(rows['beyond'].sum())} of {int(rows['difference'].count())} rows"
        assert line == (
            f"CONFIDENTIAL: {counts} lie more than 3 standard errors from the sample: see "
            f"{out / 'confidential' / 'adequacy.html'}. Whether to publish after looking is a "
            "decision that depends on the data; epsilon does not cover it."
        )
        told.append(re.sub(r"^CONFIDENTIAL: \d+ of \d+", "", line.replace(str(out), "")))
        logs.append(captured.err)
        assert "adequa" not in captured.err
    assert told[0] == told[1]
    assert logs[0] == logs[1]


@pytest.mark.usefixtures("stand_in_mechanism")
def test_no_look_at_the_data_decides_whether_there_is_a_release(
    make_spec: MakeSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("salary 123456.789")

    monkeypatch.setattr("surveysynth.evaluation.compare.adequacy_report.compare_with_sample", fail)
    spec = make_spec(survey=SIZE)
    assert cli.main(["release", str(spec), "--out", str(tmp_path / "out"), "--seed", "1"]) == 0
    captured = capsys.readouterr()
    where = "surveysynth/evaluation/compare/"
    assert f"no adequacy report could be made (ValueError at {where}" in captured.out
    assert "123456" not in captured.out + captured.err
    release_alone(spec, tmp_path / "plain", seed=1)
    assert files_of(tmp_path / "out/release") == files_of(tmp_path / "plain/release")


@pytest.mark.usefixtures("stand_in_mechanism")
def test_a_second_release_keeps_what_the_first_one_found(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec, confidential = make_spec(survey=SIZE), tmp_path / "confidential"
    for name in ("one", "two"):
        ss.run_release(spec, tmp_path / name, confidential=confidential)
    for folder in (confidential, confidential / "earlier_runs" / "0001"):
        for name in FILES:
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert not (tmp_path / "one" / "confidential").exists()


def test_check_tells_nothing_of_the_outcome(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from surveysynth.mechanisms.pseudo_posterior.feasibility import FeasibilityReport, Trial

    monkeypatch.setattr(
        "surveysynth.mechanisms.pseudo_posterior.feasibility.check",
        lambda design, model, settings, **others: FeasibilityReport(
            settings, (Trial(0.5, True, "", 0.9),)
        ),
    )
    told = []
    frame = small_survey()
    for salary in (frame["salary"], frame["salary"] ** 3 / 1e6):
        spec = make_spec(frame.assign(salary=salary), survey=SIZE)
        assert cli.main(["check", str(spec)]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert "power" not in told[0].lower()
