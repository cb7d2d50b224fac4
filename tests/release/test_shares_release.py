"""Tables of shares and rows by an outcome in a release, from synthetic datasets made by hand.

Truth: the arrays that these were made from, worked out here; the programs of the README; a survey
with other confidential values, from which the same files come.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.api.commands import adequacy
from surveysynth.config.build import model_of, read_design, read_survey
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.evaluation.compare.folder import render_report
from surveysynth.evaluation.laplace import Noise
from surveysynth.inference import synthesis as synthesis_module
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.check import preview_lines
from surveysynth.release.microdata import Digits
from surveysynth.release.pipeline import release
from surveysynth.release.reader import read_release
from surveysynth.survey.outcome import Outcome
from tests.release.documents.test_readme_programs import assert_recomputes, program_of
from tests.release.test_kinds import MakeSpec, frame_of
from tests.release.test_strict_release import files_of
from tests.surveys import NOISY, WEIGHT

pytestmark = pytest.mark.usefixtures("stand_in_mechanism")

ALL = 'formats = ["csv", "html", "latex", "xlsx", "markdown", "svg"]'
DECLARED = {
    "salary": "center = 60000\nspread = 0.5\n",
    "benefit": 'kind = "semicontinuous"\nspikes = [0]\ncenter = 1500\nspread = 0.5\n',
    "works": 'kind = "binary"\nlevels = ["no", "ja, \\"`x`\\""]\n',
    "employed": 'kind = "binary"\n',
    "sector": 'kind = "categorical"\nlevels = ["3", "1", "none"]\n',
}
KINDS = {
    "salary": Outcome("salary"),
    "benefit": Outcome("benefit", "semicontinuous", spikes=(0.0,)),
    "works": Outcome("works", "binary", levels=("no", 'ja, "`x`"')),
    "employed": Outcome("employed", "binary"),
    "sector": Outcome("sector", "categorical", levels=("3", "1", "none")),
}
#: In this dataset nobody is in the sector "3", and nobody at all in it and field a.
WITHOUT = (2, 1)


def survey_frame(seed: int = 8) -> pd.DataFrame:
    """A survey whose confidential values depend on the seed, its public columns do not."""
    rng = np.random.default_rng(seed)
    # In the order in which the records of a release are.
    frame = frame_of().sort_values(["field", "gender"], kind="stable", ignore_index=True)
    n = len(frame)
    return frame.assign(
        benefit=np.where(rng.random(n) < 0.5, 0.0, rng.uniform(100.0, 4_000.0, n)),
        works=rng.choice(KINDS["works"].levels, n),
        employed=rng.integers(0, 2, n),
        sector=rng.choice(["3", "1", "none"], n, p=[0.3, 0.4, 0.3]),
        salary=np.exp(rng.normal(10, 0.4, n)),
        weight=rng.uniform(20, 40, n),
    )


def values_of(names: list[str], rng: np.random.Generator, frame: pd.DataFrame) -> FloatArray:
    n, columns = len(frame), []
    for name in names:
        kind = KINDS[name]
        category = rng.choice(kind.categories, n, p=_shares(kind.categories))
        if name == "sector":
            category[(category == 0) & (frame["field"] == "a")] = 1
        columns.append(kind.values(category, rng.uniform(1.0, 9.0, n)))
    return np.stack(columns, axis=1)


def _shares(levels: int) -> FloatArray:
    shares = np.arange(1.0, levels + 1)
    return shares / shares.sum()


Made = dict[tuple[int, int], SyntheticDataset]
Install = Callable[..., Made]


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Install:
    """In the place of the model's datasets one of each of ten draws of those outcomes; with a
    ``pair`` for variances, which plain amounts have, four of each of three."""

    def install(names: list[str], *, pair: bool = False, size: float = 24_000.0) -> Made:
        rng, frame, made = np.random.default_rng(2), survey_frame(), {}
        for key in product(range(1, 4), range(1, 5)) if pair else product(range(1, 11), [1]):
            values, weight = values_of(names, rng, frame), rng.uniform(50.0, 150.0, len(frame))
            weight *= size / weight.sum()
            if key == WITHOUT and "sector" in names:
                sector = values[:, names.index("sector")]
                sector[sector == 0] = 2.0
            data = SyntheticDataset(*key, values, weight, values, weight)
            if pair:
                other = values_of(names, rng, frame)
                data = replace(data, variance_outcome=other, variance_weight=weight[::-1])
            made[key] = data

        def synthesize(*_: Any, **__: Any) -> Iterator[SyntheticDataset]:
            yield from made.values()

        monkeypatch.setattr(synthesis_module, "synthesize", synthesize)
        return made

    return install


def spec_of(
    make_spec: MakeSpec, names: list[str], extra: str = "", *, seed: int = 8, **lines: str
) -> Path:
    lines = {"privacy": NOISY, **lines}
    path = make_spec(survey_frame(seed), **lines)
    needed = lines["privacy"] == NOISY and "population_size" not in lines.get("survey", "")
    extra += WEIGHT * needed
    sections = "".join(f"[outcomes.{name}]\n{DECLARED[name]}" for name in names)
    text = path.read_text(encoding="utf-8").replace('outcome = "salary"\n', "")
    path.write_text(text + sections + extra, encoding="utf-8")
    return path


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, dtype={"level": str, "sector": str})


def mean_over(made: Made, number: Callable[[SyntheticDataset], float]) -> float:
    """Over replicates, then over draws."""
    draws = {key[0] for key in made}
    return float(np.mean([
        np.mean([number(data) for key, data in made.items() if key[0] == draw]) for draw in draws
    ]))  # fmt: skip


def as_published(made: Made, spec: Path) -> Made:
    """With the digits of a release."""
    digits = Digits(read_design(load_spec(spec)), 6)
    return {key: digits.rounded(data) for key, data in made.items()}


# --- Shares --------------------------------------------------------------------------------------


def test_shares_of_every_outcome_with_levels_in_every_format(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install
) -> None:
    names = list(DECLARED)
    labels = '[labels.works]\ntitle = "At <work>"\nlevels = { no = "Not & never" }\n'
    tables = f'statistics = ["share", "count"]\n{ALL}'
    spec = spec_of(make_spec, names, labels, tables=tables)
    made = as_published(by_hand(names), spec)
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release"
    frame = read(folder / "tables" / "shares.csv")
    assert frame.columns.tolist()[:5] == ["outcome", "level", "field", "gender", "is_margin"]
    assert frame["outcome"].unique().tolist() == ["benefit", "works", "employed", "sector"]
    survey = survey_frame()
    for (outcome, field), rows in frame[frame["gender"] == "All"].groupby(["outcome", "field"]):
        kind, inside = KINDS[outcome], (survey["field"] == field) | (field == "All")
        assert rows["level"].tolist() == list(kind.category_names)
        assert (rows["n"] == inside.sum()).all()
        column = names.index(outcome)
        for position, estimate in enumerate(rows["estimate"].astype(float)):
            found = [kind.category(data.outcome[:, column]) == position for data in made.values()]
            weights = np.concatenate([data.weight[inside] for data in made.values()])
            share = np.average(np.concatenate([each[inside] for each in found]), weights=weights)
            assert estimate == pytest.approx(share, rel=1e-12)
        assert rows["estimate"].astype(float).sum() == pytest.approx(1.0, rel=1e-12)
    numbers = frame[["estimate", "ci_lower", "ci_upper"]].replace("", np.nan).astype(float)
    assert numbers.stack().dropna().between(0, 1).all()
    html = (folder / "tables" / "shares.html").read_text()
    for words in ("At &lt;work&gt; · field: a · gender: f", "Not &amp; never",
                  "percentages of a row add up to 100", "logit scale"):  # fmt: skip
        assert words in html, words
    assert r"At \textless{}work\textgreater{}" in (folder / "tables" / "shares.tex").read_text()
    assert "At \\<work\\>" in (folder / "tables" / "shares.md").read_text()
    assert "At &lt;work&gt;" in (folder / "figures" / "shares.svg").read_text()
    with ZipFile(folder / "tables" / "tables.xlsx") as workbook:
        shown = workbook.read("xl/sharedStrings.xml").decode()
    for words in (">Not &amp; never<", ">At &lt;work&gt;<", ">Shares 4<"):
        assert words in shown, words
    assert "a line for each level" in (folder / "README.md").read_text()
    assert "outcome" not in read(folder / "tables" / "counts.csv")
    back = read_release(folder).tables["shares"]
    assert back["level"].tolist() == frame["level"].tolist()


def test_one_outcome_needs_no_column_and_heads_its_levels(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install
) -> None:
    by_hand(["salary", "sector"])
    tables = 'by = []\nstatistics = ["share"]\nformats = ["csv", "markdown"]'
    spec = spec_of(make_spec, ["salary", "sector"], tables=tables)
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release" / "tables"
    frame = read(folder / "shares.csv")
    assert frame.columns[0] == "level"
    assert frame["level"].tolist() == ["3", "1", "none"]
    lines = (folder / "shares.md").read_text().splitlines()
    (heading,) = [line for line in lines if "| Standard error |" in line]
    assert heading.startswith("| sector |")
    assert not any(line.startswith("| *") for line in lines)  # no group without a domain


def test_a_share_of_none_has_no_interval_and_says_so(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install
) -> None:
    by_hand(["salary", "sector"])
    tables = 'statistics = ["share"]\nformats = ["csv", "html"]'
    release(spec_of(make_spec, ["salary", "sector"], tables=tables), tmp_path / "out")
    folder = tmp_path / "out" / "release" / "tables"
    frame = read(folder / "shares.csv")
    never = (frame["field"] == "a") & (frame["level"] == "3")
    assert (frame.loc[never, ["estimate", "se"]].astype(float) == 0).all(axis=None)
    assert (frame.loc[never, ["ci_lower", "ci_upper"]] == "").all(axis=None)
    assert (frame.loc[~never, ["ci_lower", "ci_upper"]] != "").all(axis=None)
    assert "At 0% and 100% an interval cannot be computed" in (folder / "shares.html").read_text()


# --- Rows by an outcome --------------------------------------------------------------------------

BY = 'by = ["field", "sector"]\nstatistics = ["count", "total", "mean", "share", "proportion"]\n'
OF_ROWS = ["salary", "employed", "sector"]


def test_rows_by_an_outcome_are_those_of_each_dataset(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install
) -> None:
    spec = spec_of(make_spec, OF_ROWS, tables=BY + ALL)
    made = as_published(by_hand(OF_ROWS), spec)
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release"
    counts, means = (read(folder / "tables" / f"{name}.csv") for name in ("counts", "means"))
    survey, levels = survey_frame(), ("3", "1", "none")
    for (field, sector), row in counts.set_index(["field", "sector"]).iterrows():
        where = ((survey["field"] == field) | (field == "All")).to_numpy()

        def inside(data: SyntheticDataset) -> Any:
            at = data.outcome[:, 2]
            chosen = np.ones(len(at), bool) if sector == "All" else at == levels.index(sector)  # noqa: B023
            return where & chosen  # noqa: B023

        def number(data: SyntheticDataset) -> float:
            return float(data.weight[inside(data)].sum())

        assert float(row["estimate"]) == pytest.approx(mean_over(made, number), rel=1e-12)
        fewest = min(int(inside(data).sum()) for data in made.values())
        mean = means.set_index(["field", "sector"]).loc[(field, sector)]
        assert row["n"] == ("" if sector != "All" else str(where.sum()))
        flag = "synthetic n=0" if fewest == 0 else "synthetic n<5" if fewest < 5 else ""
        assert row["flag"] == mean["flag"] == flag
        most = max(int(inside(data).sum()) for data in made.values())
        assert (mean["estimate"] == "") == (most == 0)
        if field == "a" and sector == "3":  # in no dataset
            assert (row["estimate"], row["se"], row["ci_lower"]) == (0.0, "", "")
        elif sector == "3" and field == "All":  # in all but one
            assert fewest == 0
            assert float(row["se"]) > 0
    shares = read(folder / "tables" / "shares.csv")
    assert shares["level"].unique().tolist() == ["0", "1"]  # of employed alone
    html = (folder / "tables" / "means.html").read_text()
    for words in ("Rows by sector contain different synthetic", "No records in some synthetic"):
        assert words in html
    totals = counts.set_index(["field", "sector"])["estimate"].astype(float)
    of_levels = totals["b"].loc[list(levels)].sum()
    assert of_levels == pytest.approx(totals["b", "All"], rel=1e-12)


def test_the_documents_say_what_rows_by_an_outcome_are(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install
) -> None:
    by_hand(OF_ROWS)
    spec = spec_of(make_spec, OF_ROWS, '[labels.sector]\nmargin = "Any"\n', tables=BY)
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release"
    columns = {c["name"]: c for c in json.loads((folder / "codebook.json").read_text())["columns"]}
    assert columns["sector"]["roles"] == ["outcome", "table"]
    assert columns["sector"]["margin_in_tables"] == "Any"
    assert "not published" in columns["sector"]["meaning"]
    assert columns["field"]["roles"][0] == "table"
    assert "Their `n` is empty" in (folder / "README.md").read_text()
    tables = read_release(folder).tables
    assert tables["means"]["n"].isna().sum() == 4 * 3
    assert tables["means"]["sector"].iloc[0] == "Any"
    lines = "\n".join(map(str, preview_lines(load_spec(spec), read_design(load_spec(spec)),
                                    model_of(load_spec(spec)))))  # fmt: skip
    assert "Each is divided further by sector" in lines
    assert "(16 rows each)" in lines
    assert "Cells: 3 and 1 margins" in lines


@pytest.mark.parametrize(
    ("statistic", "by", "data", "survey"),
    [("mean", "sector", "survey.csv", ""),
     ("count", "sector", "survey.csv", "population_size = 30000"),
     ("mean", "employed", "survey.csv", ""),
     ("mean", "employed", "survey.parquet", "")],
)  # fmt: skip
def test_programs_recompute_rows_by_an_outcome(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install, statistic: str, by: str, data: str,
    survey: str,
) -> None:  # fmt: skip
    names = ["salary", *dict.fromkeys(["employed", by])]
    by_hand(names, size=30_000.0)
    tables = f'by = ["{by}", "field"]\nstatistics = ["{statistic}"]'
    release(spec_of(make_spec, names, tables=tables, data=data, survey=survey), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    program = program_of(folder, "python")
    assert f"CELL = {{'{by}'" in program
    assert_recomputes(folder, r=data.endswith("csv") and by == "employed" and not survey)


def test_nothing_published_depends_on_who_is_in_the_rows(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install
) -> None:
    """Two surveys with other outcomes and weights of the same people: from the same draws the same
    files come, though nobody of the second is where most of the first are."""
    by_hand(OF_ROWS)
    made, samples = [], []
    for seed in (8, 9):
        spec = spec_of(make_spec, OF_ROWS, tables=BY + ALL + '\nflags = "nchs"', seed=seed)
        if seed == 9:
            frame = pd.read_csv(spec.parent / "survey.csv", dtype={"sector": str})
            frame.assign(sector=np.where(np.arange(len(frame)) % 40, "none", "1")).to_csv(
                spec.parent / "survey.csv", index=False
            )
        out = tmp_path / f"out{seed}"
        release(spec, out, seed=1)
        made.append({
            name: content for name, content in files_of(out / "release").items()
            if name.startswith(("tables", "microdata"))
        })  # fmt: skip
        survey = read_survey(load_spec(spec))
        samples.append(Noise(load_spec(spec), survey).sample["count", None])
    assert made[0].keys() == made[1].keys()
    assert [name for name in made[0] if made[0][name] != made[1][name]] == []
    # What would show, if it were looked at: estimates and flags of the sample itself.
    assert not samples[0]["flag"].equals(samples[1]["flag"])
    assert not samples[0]["estimate"].equals(samples[1]["estimate"])
    assert samples[0]["n"].isna().sum() == 12


def test_mistakes_are_told(make_spec: MakeSpec) -> None:
    cases = {
        'by = ["field", "sector"]\nstatistics = ["share"]\n[labels.sector]\nmargin = "1"':
            r"tables.by: 'sector' has a level '1', the name of its margin",
        'by = ["employed", "sector"]\nstatistics = ["share"]':
            "'share' has no outcome left: rows are by employed, sector",
    }  # fmt: skip
    for tables, words in cases.items():
        with pytest.raises(InputError) as raised:
            read_survey(load_spec(spec_of(make_spec, OF_ROWS, tables=tables)))
        assert words in str(raised.value).replace("'employed', 'sector'", "employed, sector")


def test_a_comparison_has_shares_and_rows_by_an_outcome(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surveysynth.evaluation.compare import comparison as module

    spec = load_spec(spec_of(make_spec, OF_ROWS, tables=BY))
    survey = read_survey(spec)
    monkeypatch.setattr(module, "synthesizers", lambda *_: ((), ()))
    made = module.compare(spec, survey, seed=1)
    frame = made.frame()
    sample = frame[(frame["statistic"] == "share") & (frame["method"] == "sample")]
    assert sample["level"].unique().tolist() == ["0", "1"]
    weight = survey.confidential.sampling_weight
    assert weight is not None
    inside = survey.confidential.outcome[:, 2] == 1
    expected = np.average(survey.confidential.outcome[inside, 1], weights=weight[inside])
    row = sample[(sample["field"] == "All") & (sample["sector"] == "1") & (sample["level"] == "1")]
    assert row["estimate"].item() == pytest.approx(expected, rel=1e-12)
    assert made.methods == ("sample",)
    why = "noise is made in rows of all records by public columns."
    assert set(made.left_out.values()) == {why}
    page = render_report(made, (), test=True)
    assert "Shares (%): employed" in page


def test_the_look_beside_the_sample_has_its_own_records_in_rows_by_an_outcome(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install
) -> None:
    by_hand(OF_ROWS)
    result = release(spec_of(make_spec, OF_ROWS, tables=BY), tmp_path / "out")
    looked = adequacy(result.out)
    found = read(result.confidential / "adequacy.csv")
    assert list(found)[:5] == ["statistic", "outcome", "level", "field", "sector"]
    survey = survey_frame()
    tables = {
        name: read(result.out / "release" / "tables" / f"{name}s.csv")
        for name in found["statistic"].unique()
    }
    compared = 0
    for statistic, rows in found.groupby("statistic", sort=False):
        published = tables[str(statistic)]["estimate"].astype(str)
        assert rows["published"].astype(str).tolist() == published.tolist()
        for row in rows.to_dict("records"):
            inside = survey
            for column in ("field", "sector"):
                if row[column] != "All":
                    inside = inside[inside[column] == row[column]]
            values = {"": inside["salary"], "0": 1 - inside["employed"], "1": inside["employed"]}[
                "1" if statistic == "proportion" else row["level"]
            ]
            weight = inside["weight"]
            value = weight.sum() if statistic == "count" else (weight * values).sum()
            if statistic not in ("count", "total"):
                value /= weight.sum()
            assert float(row["sample"]) == pytest.approx(value, rel=1e-10)
            # That of the sample is confidential, but so is this folder; it is not the published n.
            assert row["n"] == ("" if row["sector"] != "All" else str(len(inside)))
            if row["difference"] == "":
                continue
            apart = (float(row["predicted"]) - value) / float(row["expected_error"])
            assert float(row["difference"]) == pytest.approx(apart, rel=1e-6, abs=1e-9)
            compared += 1
    assert looked.rows == compared > 60
    assert "farthest rows" in looked.page.read_text()
