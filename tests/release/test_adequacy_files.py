"""What ``adequacy`` leaves in the confidential folder of how far a release lies from its sample.

Truth: every row by sums written out over the records; planted misfits; the release tree before the
look, byte for byte; listings and modes of the file system."""

import stat
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth import cli
from surveysynth.estimation.statistics import REPORT_COLUMNS, TABLE_COLUMNS
from surveysynth.release.figure_style import MARK
from tests.release.test_confidentiality import assert_nothing_leaks
from tests.surveys import MakeSpec, clustered_survey, small_survey

FILES = {"adequacy.html", "adequacy.csv"}
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
    "labels": "[outcomes.salary]\ncenter = 22000\nspread = 0.45",
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
    assert not FILES & set(files_of(result.confidential))  # nothing is looked at unasked
    found = ss.adequacy(result.out)
    rows = rows_of(result.out)
    assert len(rows) == 24
    # A by column of one of these names would be lost, and is refused.
    assert set(rows) - {"predicted", "expected_error"} == {
        *TABLE_COLUMNS, *REPORT_COLUMNS, "field", "gender"
    } - {
        "method", "rmse", "estimate", "se", "df", "df_design", "ci_lower", "ci_upper", "flag",
        "beyond",
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
            apart = (row["published"] - value) / row["expected_error"]
            assert row["difference"] == pytest.approx(apart, rel=1e-6)
            compared += 1
            beyond += abs(apart) > 2.576
    assert (found.rows, found.beyond) == (compared, beyond)
    assert found.page == result.confidential / "adequacy.html"
    assert beyond > 1  # a stand-in knows nothing of the data
    assert found.p_value < 0.01


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
    ss.release(make_spec(planted(kind), **OPEN), tmp_path / "out", seed=3)
    found = ss.adequacy(tmp_path / "out")
    assert found.rows == 23
    if kind == "lump":
        # Errors are those that the wrong model expects: of logs with two lumps, wide ones.
        assert found.beyond >= 2
        assert found.p_value < 0.05
    else:
        assert found.beyond <= 1
        assert found.p_value > 0.05


@pytest.mark.parametrize("lines", [OPEN, STRICT], ids=["pseudo_posterior", "noisy_statistics"])
def test_nothing_of_it_is_published_and_only_its_owner_may_read_it(
    make_spec: MakeSpec, tmp_path: Path, lines: dict[str, str]
) -> None:
    frame = small_survey(600)
    spec = make_spec(frame, **lines, tables='formats = ["csv", "html", "markdown"]')
    released = ss.release(spec, tmp_path / "out", seed=2)
    confidential = released.confidential
    before, kept = files_of(tmp_path / "out/release"), set(files_of(confidential))
    assert ss.adequacy(released.out).p_value > 0.01
    assert files_of(tmp_path / "out/release") == before
    assert set(files_of(confidential)) - kept == FILES
    ss.adequacy(released.out)  # in place of the first
    assert stat.S_IMODE(confidential.stat().st_mode) == 0o700
    for name in FILES:
        assert stat.S_IMODE((confidential / name).stat().st_mode) == 0o600
    rows = rows_of(released.out).dropna(subset="difference")  # without the public total
    numbers = np.abs(rows[["sample", "sample_se", "difference"]].to_numpy().ravel())
    forbidden = np.array([each for each in numbers if float(f"{each:.5g}") != each])
    assert forbidden.size > 50
    assert_nothing_leaks(tmp_path / "out/release", forbidden)
    # What is kept for it says nothing of the sample either.
    kept_text = (confidential / "draws.json").read_text()
    assert not any(f"{each:.9g}"[:8] in kept_text for each in forbidden)
    for content in before.values():
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


@pytest.mark.usefixtures("stand_in_mechanism")
def test_the_page_needs_nothing_else_and_says_what_it_is(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    title = 'title = "<script>alert(1)</script> & more"'
    spec = make_spec(survey=SIZE, tables=f'{title}\nflags = "nchs"')
    found = ss.adequacy(ss.release(spec, tmp_path / "out").out)
    page = Page(found.page.read_text())
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    assert "link" not in tags
    (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
    assert MARK in str(image["alt"])
    assert tags.count("table") == 1
    shown = " ".join(page.text)
    assert shown.count(MARK) >= 2
    assert "<script>alert(1)</script> & more" in shown
    # The warning comes before the numbers.
    assert shown.index("Epsilon does not cover it") < shown.index(f"of {found.rows} rows")
    rows = rows_of(tmp_path / "out")
    # What a release withholds is not compared.
    assert found.rows == rows["difference"].count() <= rows["published"].count()


@pytest.mark.usefixtures("stand_in_mechanism")
def test_the_terminal_says_it_on_demand_alone_and_warns_first(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    told = []
    for factor in (1.0, 7.0):
        frame = small_survey()
        spec = make_spec(frame.assign(salary=frame["salary"] * factor), survey=SIZE)
        assert cli.main(["release", str(spec), "--out", str(out), "--overwrite"]) == 0
        captured = capsys.readouterr()
        assert "rows" not in captured.out
        told.append(captured.err)
        assert cli.main(["adequacy", str(out)]) == 0
        warned, verdict, where = capsys.readouterr().out.splitlines()
        assert warned.startswith("CONFIDENTIAL: ")
        rows = rows_of(out)
        beyond = int((rows["difference"].abs() > 2.576).sum())
        assert f"{beyond} of {int(rows['difference'].count())} rows differ" in verdict
        assert where == f"See {out / 'confidential' / 'adequacy.html'}."
    assert told[0] == told[1]


@pytest.mark.usefixtures("stand_in_mechanism")
def test_a_specification_that_has_changed_is_refused(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec(survey=SIZE)
    ss.release(spec, tmp_path / "out")
    text = spec.read_text()
    assert '["field", "gender"]' in text
    spec.write_text(text.replace('["field", "gender"]', '["gender"]'))
    assert cli.main(["adequacy", str(tmp_path / "out")]) == 2
    assert "the specification or the public columns are not those of" in capsys.readouterr().err
    assert cli.main(["adequacy", str(tmp_path)]) == 2
    assert "draws.json is missing" in capsys.readouterr().err


@pytest.mark.usefixtures("stand_in_mechanism")
def test_a_second_release_keeps_what_the_first_one_found(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec, confidential = make_spec(survey=SIZE), tmp_path / "confidential"
    for name in ("one", "two"):
        ss.release(spec, tmp_path / name, confidential=confidential)
        ss.adequacy(tmp_path / name, confidential=confidential)
    for folder in (confidential, confidential / "earlier_runs" / "0001"):
        for name in FILES:
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert not (tmp_path / "one" / "confidential").exists()


def test_check_tells_nothing_of_the_outcome(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    frame = small_survey()
    for salary in (frame["salary"], frame["salary"] ** 3 / 1e6):
        spec = make_spec(frame.assign(salary=salary), survey=SIZE)
        assert cli.main(["check", "--quick", str(spec)]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert "power" not in told[0].lower()
