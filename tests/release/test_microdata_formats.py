"""Synthetic microdata as files of Stata and SPSS. Truth: the values and labels that went in, read
by pandas (Stata) and by R's haven and foreign; the README's programs; the csv of the same run."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.config.sections import LabelSection
from surveysynth.errors import InputError
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.microdata import MicrodataWriter, check_names, cut, values_of
from surveysynth.release.pipeline import rebuild, release
from surveysynth.release.reader import read_release
from surveysynth.release.tables.layout import Labels
from surveysynth.survey.outcome import Outcome
from tests.release.documents.test_readme_programs import assert_recomputes, has_haven
from tests.release.test_strict_release import strict_spec
from tests.surveys import MakeSpec, good, make_survey, small_survey

label_of = LabelSection.model_construct

LABELS = Labels(
    {
        "field": label_of(title="Field of study", levels={"01": "Biology", "02": "Größe & <b>"}),
        "gender": label_of(title="Gender", levels={"1": "Men", "2": "Women"}),
        "salary": label_of(title="Annual salary", unit="US dollars"),
        "works": label_of(levels={"no": "Does not work", "yes": "Works"}),
    }
)
FIELDS = {1: "Biology", 2: "Größe & <b>", 3: "03", 4: "04"}
R_READS = """
library({library})
data <- {read}
labels <- lapply(data, function(x) attr(x, "labels"))
values <- lapply(data, function(x) as.vector(x))
titles <- lapply(data, function(x) attr(x, "label"))
out <- list(values = values, titles = titles, labels = lapply(labels, as.list))
cat(jsonlite::toJSON(out, digits = NA, auto_unbox = TRUE, na = "null"))
"""


def one_dataset(folder: Path, file_format: str) -> tuple[Path, pd.DataFrame]:
    """A dataset made by hand, as it is written, and the frame that it should show."""
    frame = good()
    frame["gender"] = np.where(frame["gender"] == "M", "1", "2")
    frame["works"] = np.where(np.arange(len(frame)) % 3 == 0, "no", "yes")
    works = Outcome("works", "binary", levels=("no", "yes"))
    survey = make_survey(
        frame, outcome=None, outcomes=[Outcome("salary", "continuous"), works],
        by=["field", "gender"], predictors="field + gender + age", public_columns=["note"],
    )  # fmt: skip
    n = survey.design.n
    rng = np.random.default_rng(5)
    # As many digits as JSON from R has.
    outcome = np.stack([rng.lognormal(10, 1, n).round(2), rng.integers(0, 2, n)], axis=1)
    weight = rng.lognormal(3, 1, n).round(4)
    pair = (outcome * [1.5, 1.0]).round(3), weight[::-1].copy()
    data = SyntheticDataset(1, 1, outcome, weight, *pair)
    writer = MicrodataWriter(survey.design, folder, file_format, LABELS, "Salaries")  # type: ignore[arg-type]
    order = writer._order
    public = survey.design.frame.iloc[order].reset_index(drop=True)
    named = np.array(["no", "yes"])[outcome[order, 1].astype(int)]
    shown = public.assign(
        salary=outcome[order, 0], works=named, weight=weight[order],
        salary_for_variance=pair[0][order, 0], works_for_variance=named,
        weight_for_variance=pair[1][order],
    )  # fmt: skip
    writer.write(data)
    return folder / f"draw_01_rep_01.{file_format}", shown


def check_values(read: pd.DataFrame, shown: pd.DataFrame) -> None:
    """Numbers to the last digit; codes that are whole numbers as they are, others as positions."""
    assert list(read.columns) == list(shown.columns)
    for name in ("salary", "weight", "salary_for_variance", "weight_for_variance", "age"):
        np.testing.assert_array_equal(read[name].astype(float), shown[name].astype(float))
    assert read["gender"].astype(int).tolist() == shown["gender"].astype(int).tolist()
    assert read["field"].astype(int).tolist() == [int(code) for code in shown["field"]]
    assert read["works"].astype(int).tolist() == (1 + (shown["works"] == "yes")).tolist()
    assert read["note"].tolist() == shown["note"].tolist()


def test_a_stata_file_is_what_pandas_reads(tmp_path: Path) -> None:
    path, shown = one_dataset(tmp_path / "m", "dta")
    check_values(pd.read_stata(path, convert_categoricals=False), shown)
    with pd.read_stata(path, iterator=True) as reader:
        titles = reader.variable_labels()
        assert reader.data_label == "Salaries"
        by_set = reader.value_labels()
    assert titles["field"] == "Field of study"
    assert titles["salary"] == "Annual salary (US dollars)"
    assert titles["salary_for_variance"] == "Annual salary (US dollars), for variances"
    found = [dict(each) for each in by_set.values()]
    for expected in (FIELDS, {1: "Men", 2: "Women"}, {1: "Does not work", 2: "Works"}):
        assert expected in found
    categories = pd.read_stata(path)
    labels = {**FIELDS}
    assert categories["field"].tolist() == [labels[int(code)] for code in shown["field"]]


@pytest.mark.parametrize(
    ("file_format", "library", "read"),
    [("dta", "haven", "read_dta('{path}')"), ("sav", "haven", "read_sav('{path}')"),
     ("sav", "foreign", "read.spss('{path}', use.value.labels = FALSE, to.data.frame = TRUE)")],
)  # fmt: skip
def test_r_reads_values_and_labels(
    tmp_path: Path, file_format: str, library: str, read: str
) -> None:
    if shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed")
    asks = f"quit(status = !all(c('{library}', 'jsonlite') %in% rownames(installed.packages())))"
    if subprocess.run(["Rscript", "-e", asks], capture_output=True, check=False).returncode:
        pytest.skip(f"R has no {library} or no jsonlite")
    path, shown = one_dataset(tmp_path / "m", file_format)
    script = R_READS.format(library=library, read=read.format(path=path))
    done = subprocess.run(
        ["Rscript", "-e", script], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    out = json.loads(done.stdout)
    values = pd.DataFrame(out["values"])
    if library == "foreign":
        values["note"] = values["note"].str.rstrip()
    check_values(values, shown)
    if library == "haven":
        assert out["titles"]["salary"] == "Annual salary (US dollars)"
        assert out["labels"]["field"] == {label: value for value, label in FIELDS.items()}
        assert out["labels"]["works"] == {"Does not work": 1, "Works": 2}


@pytest.mark.usefixtures("stand_in_mechanism")
@pytest.mark.parametrize("file_format", ["dta", "sav", "parquet"])
def test_a_release_in_other_formats_than_the_survey(
    make_spec: MakeSpec, tmp_path: Path, file_format: str
) -> None:
    """The csv of the same seed has the same codes and numbers; the programs give the table's."""
    frame = small_survey()
    frame["gender"] = frame["gender"].map({"f": "1", "m": "2"})
    labels = '[labels.field.levels]\na = "A"\nb = "B"\nc = "C"'
    given = {"survey": 'fpc = "fraction"', "labels": labels}
    plain = release(make_spec(frame, **given), tmp_path / "csv", seed=3)
    spec = make_spec(frame, tables=f'microdata = "{file_format}"', **given)
    made = release(spec, tmp_path / "out", seed=3)
    one, other = read_release(made.out), read_release(plain.out)
    assert one.keys == other.keys
    for key in one.keys:
        pd.testing.assert_frame_equal(one.dataset(*key), other.dataset(*key), check_dtype=False)
    levels = {c["name"]: c.get("levels") for c in one.codebook["columns"]}
    folder, labelled = made.out / "release", file_format != "parquet"
    assert levels["field"] == [
        {"code": code, "label": code.upper(), **({"value": place} if labelled else {})}
        for place, code in enumerate("abc", start=1)
    ]
    if labelled:
        assert [each["value"] for each in levels["gender"]] == [1, 2]
    assert_recomputes(folder, r=labelled and has_haven())
    (folder / "microdata" / f"draw_01_rep_01.{file_format}").write_bytes(b"x")
    with pytest.raises(InputError, match="damaged"):
        one.dataset(1)


@pytest.mark.usefixtures("stand_in_posterior")
def test_tables_are_made_again_from_stata_files_and_as_a_spreadsheet(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    tables = 'microdata = "dta"\nformats = ["csv", "ods"]'
    out = release(strict_spec(make_spec, tables=tables), tmp_path / "out", seed=2).out
    made = rebuild(out, tmp_path / "again")
    assert made.different == ()
    assert {"tables/counts.csv", "tables/means.csv", "tables/tables.ods"} <= set(made.same)


def test_what_cannot_be_written_is_told_before_the_data_are_used(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the mechanism ran")

    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", never)
    frame = small_survey().rename(columns={"gender": "gender of person"})
    tables = 'by = ["field", "gender of person"]\nmicrodata = "dta"'
    with pytest.raises(InputError, match="'gender of person' cannot be the name"):
        release(make_spec(frame, tables=tables), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file_format", "name", "taken"),
    [("dta", "income_2020", True), ("dta", "_x", True), ("dta", "größe", True),
     ("dta", "a b", False), ("dta", "1a", False), ("dta", "if", False), ("dta", "str7", False),
     ("dta", "a" * 32, True), ("dta", "a" * 33, False), ("dta", "", False),
     ("sav", "income", True), ("sav", "_x", False), ("sav", "With", False), ("sav", "a-b", False),
     ("sav", "a" * 64, True), ("sav", "a" * 65, False), ("csv", "a b", True)],
)  # fmt: skip
def test_names_that_each_program_takes(
    tmp_path: Path, file_format: str, name: str, taken: bool
) -> None:
    if taken:
        check_names([name, "other"], file_format)
    else:
        with pytest.raises(InputError, match="cannot be the name"):
            check_names([name], file_format)


def test_spss_does_not_tell_capital_letters_apart() -> None:
    check_names(["A", "a"], "dta")
    with pytest.raises(InputError, match="one name to SPSS"):
        check_names(["A", "a"], "sav")


@given(st.lists(st.text(max_size=6), unique=True))
def test_every_code_has_a_number_of_its_own(codes: list[str]) -> None:
    values = values_of(codes, positions=True)
    assert list(values) == codes
    assert len(set(values.values())) == len(codes)
    if values_of(codes, positions=False):
        assert [str(value) for value in values.values()] == codes


@given(st.text(), st.integers(0, 20))
def test_labels_are_cut_between_characters(text: str, size: int) -> None:
    line = " ".join(text.split())
    try:
        line.encode()
    except UnicodeEncodeError:
        return
    short = cut(text, size)
    assert line.startswith(short)
    assert len(short.encode()) <= size
    longer = line[: len(short) + 1]
    assert short == line or len(longer.encode()) > size
