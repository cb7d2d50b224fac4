"""Statistics with arguments in a release, from mistakes in a specification to files that read back.

Truth: weighted sums of the published microdata, worked out here; intervals by the formulas from the
published estimate and standard error; every mistake with its words."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.evaluation.compare.comparison import compare
from surveysynth.evaluation.compare.folder import make_pictures, render_report
from surveysynth.release.pipeline import release
from surveysynth.release.reader import read_release
from surveysynth.release.writers.xlsx import sheet_name
from tests.release.conftest import stand_ins
from tests.surveys import NOISY, WEIGHT, MakeSpec, small_survey, spec_text, write_survey

pytestmark = [
    pytest.mark.usefixtures("stand_in_mechanism"),
    pytest.mark.xdist_group("statistics release"),  # what its tests share is made once
]

KINDS = f"""outcome = ["salary", "tax", "employed"]
[outcomes.salary]
center = 22000
spread = 0.5
[outcomes.tax]
transform = "log"
center = 4000
spread = 0.5
[outcomes.employed]
kind = "binary"
{WEIGHT}"""
STATISTICS = [
    "median", "ratio(tax, salary)", "share(field)", "share", "difference(share, gender: f - m)",
    "difference(mean, gender: margin)", "ratio(count, field: b / a)", "count",
]  # fmt: skip


def frame_of() -> pd.DataFrame:
    frame, rng = small_survey(), np.random.default_rng(1)
    return frame.assign(tax=frame["salary"] * rng.uniform(0.1, 0.3, len(frame)))


def tables_of(statistics: list[str], more: str = "") -> str:
    listed = ", ".join(f"'{name}'" for name in statistics)
    return f"statistics = [{listed}]\n{more}"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = tables_of(STATISTICS, 'formats = ["csv", "xlsx"]\nflags = "nchs_marked"')
    text = spec_text(synthesizer=KINDS, privacy=NOISY, tables=tables)
    folder = tmp_path_factory.mktemp("statistics")
    with stand_ins():
        release(write_survey(folder / "in", frame_of(), text), folder / "out")
    return folder / "out" / "release"


def test_published_numbers_are_those_of_the_microdata(released: Path) -> None:
    read = read_release(released)
    # Stacked: of each draw there is one dataset.
    data = pd.concat([read.dataset(draw=draw, replicate=1) for draw in range(1, 11)])
    tables = read.tables
    assert len(tables) == len(STATISTICS)

    def of_all(f: Callable[[pd.DataFrame], float]) -> float:
        return float(f(data))

    def part(each: pd.DataFrame, **cell: object) -> pd.DataFrame:
        return each[np.logical_and.reduce([each[name] == code for name, code in cell.items()])]

    def mean(each: pd.DataFrame, name: str) -> float:
        return float(np.average(each[name], weights=each["weight"]))

    ratio = tables["ratio_tax_salary"].set_index(["field", "gender"])["estimate"]
    assert ratio["b", "f"] == pytest.approx(
        of_all(lambda each: mean(part(each, field="b", gender="f"), "tax")
                / mean(part(each, field="b", gender="f"), "salary")))  # fmt: skip
    # A difference of two levels has no column of theirs; of shares a line a level.
    differences = tables["difference_shares_gender_f_m"]
    assert list(differences.columns[:4]) == ["outcome", "level", "field", "is_margin"] or (
        list(differences.columns[:3]) == ["level", "field", "is_margin"]
    )
    assert differences["is_margin"].tolist() == [True, True] + 6 * [False]
    line = differences[(differences["field"] == "a") & (differences["level"] == "1")]
    assert line["estimate"].item() == pytest.approx(
        of_all(lambda each: mean(part(each, field="a", gender="f"), "employed")
                - mean(part(each, field="a", gender="m"), "employed")))  # fmt: skip
    n = frame_of().groupby(["field", "gender"]).size()
    assert line["n"].item() == min(n["a", "f"], n["a", "m"])
    over = tables["shares_over_field"].set_index(["level", "field", "gender"])["estimate"]
    assert "All" not in over.index.get_level_values("field")
    assert over["1", "c", "m"] == pytest.approx(
        of_all(lambda each: part(each, field="c", gender="m", employed=1)["weight"].sum()
                / part(each, gender="m", employed=1)["weight"].sum()))  # fmt: skip
    assert over["1", :, "All"].sum() == pytest.approx(1.0)
    counts = tables["ratio_counts_field_b_a"].set_index("gender")["estimate"]
    assert counts["All"] == pytest.approx(
        of_all(lambda each: part(each, field="b")["weight"].sum()
                / part(each, field="a")["weight"].sum()))  # fmt: skip


def test_intervals_of_proportions_are_those_that_the_nchs_judges_by(released: Path) -> None:
    table = read_release(released).tables["shares"]
    some = table[(table["estimate"] > 0) & (table["se"] > 0)].iloc[3]
    p, se, n, df = (float(some[name]) for name in ("estimate", "se", "n", "df"))
    size = p * (1 - p) / se**2 * (stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, df)) ** 2
    size = min(size, n)
    lower = stats.beta.ppf(0.025, size * p, size * (1 - p) + 1)
    upper = stats.beta.ppf(0.975, size * p + 1, size * (1 - p))
    assert (some["ci_lower"], some["ci_upper"]) == pytest.approx((lower, upper))
    readme = (released / "README.md").read_text()
    assert "are Korn and Graubard's" in readme
    assert "logit scale" not in readme
    # A difference near zero is not withheld for its relative error.
    near = read_release(released).tables["difference_means_gender_each_margin"]
    assert (near["se"] > 0.3 * near["estimate"].abs()).any()
    enough = near["n"] >= 60
    assert not near.loc[enough, "flag"].str.contains("U|C").any()


def test_workbooks_have_sheets_by_names_that_spreadsheets_take(released: Path) -> None:
    with ZipFile(released / "tables" / "tables.xlsx") as workbook:
        tree = ElementTree.fromstring(workbook.read("xl/workbook.xml"))
    names = [each.attrib["name"] for each in tree.iter() if each.tag.endswith("}sheet")]
    assert "Differences of shares gender f" in names
    assert all(len(name) <= 31 for name in names)
    taken = ["a b", "A B 2"]
    assert sheet_name("a: b", "", taken) == "a b 3"
    assert sheet_name("[x]" * 20, " 2", ()) == "x" * 20 + " 2"
    assert len(sheet_name("x" * 99, " 12", ["x" * 28 + " 12"])) == 31


def test_a_comparison_has_them_too(make_spec: MakeSpec) -> None:
    spec = load_spec(make_spec(
        frame_of(), synthesizer='outcome = ["salary", "tax"]', privacy="m = 2",
        tables=tables_of(["median", "ratio(tax, salary)", "difference(mean, gender: f - m)"]),
    ))  # fmt: skip
    made = compare(spec, read_survey(spec), methods=["sample", "fbs"], seed=1)
    frame = frame_of()
    w, inside = frame["weight"], frame["field"] == "b"
    by_gender = {
        g: np.average(frame["tax"][inside & (frame["gender"] == g)],
                      weights=w[inside & (frame["gender"] == g)]) for g in "fm"
    }  # fmt: skip
    table = made.tables["difference(mean, gender: f - m)", "tax"]["sample"].set_index("field")
    assert table["estimate"]["b"] == pytest.approx(by_gender["f"] - by_gender["m"])
    assert set(made.tables["ratio(tax, salary)", "tax"]) == {"sample", "fbs"}
    page = render_report(made, make_pictures(made), test=True)
    assert "Differences of means, gender: f - m: tax" in page


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        ("ratio(tax, wage)", "needs the outcomes 'tax', 'wage' to be amounts"),
        ("ratio(salary, tax)", "needs the outcomes 'salary', 'tax' to be amounts"),
        ("difference(mean, sex: f - m)", "compares rows by 'sex', which is not among tables.by"),
        ("difference(mean, gender: f)", r'for|expected a statistic and two rows, "difference'),
        ("difference(mean, gender: f - f)", "expected a statistic and two rows"),
        ("difference(mean)", "expected a statistic and two rows"),
        ("difference(meen, gender: f - m)", "must be one of count, total"),
        ("difference(difference(mean, gender: f - m), field: a - b)", "a contrast of contrasts"),
        ("ratio(salary, salary)", "expected two outcomes"),
        ("share(field, gender)", "needs one by variable"),
        ("quantile(95)", "one number between 0 and 1"),
    ],
)
def test_mistakes_are_told(make_spec: MakeSpec, statistic: str, words: str) -> None:
    text = make_spec(tables=tables_of([statistic])).read_text()
    with pytest.raises(InputError, match=words):
        parse_spec(text)


def test_a_level_that_the_data_do_not_have_is_told(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(tables=tables_of(["difference(mean, gender: f - x)"]))
    with pytest.raises(InputError, match="levels of 'gender', which are 'f', 'm', but names 'x'"):
        release(spec, tmp_path / "out")
    assert not (tmp_path / "out" / "release").exists()


def test_two_statistics_with_files_of_one_name_are_told(make_spec: MakeSpec) -> None:
    both = ["difference(mean, gender: f - m)", 'difference(mean, gender: "f" - "m ")']
    text = make_spec(tables=tables_of(both)).read_text()
    with pytest.raises(InputError, match="would both write difference_means_gender_f_m"):
        parse_spec(text)
