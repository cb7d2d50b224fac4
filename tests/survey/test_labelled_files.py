"""Files of Stata, SPSS and SAS. Truth: R's haven, which wrote ``golden/labelled_files.*`` and
beside them a csv of what they hold; the same survey as csv."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.config.build import read_survey, with_file_labels
from surveysynth.config.spec import Spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.release.tables.layout import Labels
from surveysynth.survey import files
from surveysynth.survey.files import LabelledTable, open_table
from tests.surveys import CANARIES, CANARY_OUTCOME, good

GOLDEN = Path(__file__).parents[1] / "golden"
ENDINGS = ("sav", "dta", "xpt")
REGIONS = {"1": "Nord & Süd", "2": "West", "3": "East"}
TEXT = """
spec_version = 1
[survey]
data = "{data}"
weight = "weight"
missing = "drop"
[synthesizer]
outcome = "salary"
predictors = "sex + region + tenure + size"
[privacy]
mechanism = "pseudo_posterior"
epsilon = 10.8
[tables]
by = ["sex"]
"""


def expected() -> pd.DataFrame:
    """The contents that haven wrote to the files."""
    return pd.read_csv(GOLDEN / "labelled_files.csv")


def golden_spec(ending: str, more: str = "") -> Spec:
    return parse_spec(
        TEXT.format(data=f"labelled_files.{ending}") + more, GOLDEN / f"{ending}.toml"
    )


def written(path: Path, frame: pd.DataFrame, **options: object) -> Path:
    writer = {".sav": pyreadstat.write_sav, ".dta": pyreadstat.write_dta,
              ".xpt": pyreadstat.write_xport}[path.suffix]  # fmt: skip
    writer(frame, str(path), **options)
    return path


def whole(path: Path) -> pd.DataFrame:
    table = open_table(path)
    return table.read(table.columns)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_cell_is_what_haven_wrote(ending: str) -> None:
    table, truth = open_table(GOLDEN / f"labelled_files.{ending}"), expected()
    assert table.columns == tuple(truth)
    frame = table.read(table.columns)
    for name in ("region", "size", "tenure", "salary", "weight"):
        read = frame[name].astype(float)
        np.testing.assert_array_equal(read, truth[name], err_msg=name)  # NaN where missing
    assert truth["tenure"].isna().sum() == 4
    assert truth["salary"].isna().sum() == 2
    assert frame["sex"].tolist() == truth["sex"].tolist()
    assert [str(day) for day in frame["day"]] == truth["day"].tolist()


def test_user_missing_codes_of_spss_are_in_the_file() -> None:
    raw, _ = pyreadstat.read_sav(str(GOLDEN / "labelled_files.sav"), user_missing=True)
    assert (raw["tenure"] < 0).sum() == 3
    assert (raw["salary"] == -9).sum() == 1


@pytest.mark.parametrize("ending", ENDINGS)
def test_titles_and_labels_are_those_of_the_file(ending: str) -> None:
    table = open_table(GOLDEN / f"labelled_files.{ending}")
    assert isinstance(table, LabelledTable)
    found = table.described
    assert found["region"].title == "Region of residence"
    assert found["weight"].title == ""
    assert found["day"].kind == "date or time"
    assert (found["salary"].kind, found["sex"].kind) == ("number", "text")
    if ending == "xpt":  # SAS keeps labels of values in a catalog of its own
        assert not any(each.labels for each in found.values())
        return
    assert found["region"].labels == {**REGIONS, "4": "Abroad"}
    # Labels of missing values are no levels.
    assert found["tenure"].labels == {"1": "Owner", "2": "Tenant"}
    assert found["salary"].labels == {}


def test_a_specification_takes_its_labels_from_the_file() -> None:
    spec = with_file_labels(golden_spec("sav"))
    labels = Labels(spec.labels)
    assert labels.title("sex") == "Sex"
    assert labels.title("salary") == "Annual salary"
    assert dict(spec.labels["sex"].levels) == {"F": "Female", "M": "Male"}
    # Only levels that occur; of a column that is labelled in part, the others by their codes.
    assert dict(spec.labels["region"].levels) == REGIONS
    assert dict(spec.labels["size"].levels) == {"1": "1", "2": "2", "3": "3", "4": "4 or more"}
    assert not spec.labels["salary"].levels


def test_a_specification_goes_first() -> None:
    more = '[labels.sex]\ntitle = "Gender"\nlevels = { M = "Men", F = "Women" }\n'
    labels = with_file_labels(golden_spec("sav", more)).labels
    assert (labels["sex"].title, list(labels["sex"].levels)) == ("Gender", ["M", "F"])
    assert labels["region"].title == "Region of residence"
    assert with_file_labels(golden_spec("csv")).labels == {}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_survey_is_that_of_the_csv_file(ending: str) -> None:
    survey, plain = read_survey(golden_spec(ending)), read_survey(golden_spec("csv"))
    assert survey.design.dropped == plain.design.dropped == 6
    pd.testing.assert_frame_equal(
        survey.design.frame[["sex", "size"]], plain.design.frame[["sex", "size"]],
        check_dtype=False,
    )  # fmt: skip
    for half in ("outcome", "sampling_weight"):
        np.testing.assert_array_equal(
            getattr(survey.confidential, half), getattr(plain.confidential, half)
        )
    # Where every value has a label a predictor is of categories, and a number in the csv file.
    columns = {"csv": 5, "xpt": 5, "sav": 6, "dta": 6}
    assert plain.design.matrix.n_columns == columns["csv"]
    assert survey.design.matrix.n_columns == columns[ending]


def test_a_rare_level_without_a_label_is_not_made_a_declared_one(tmp_path: Path) -> None:
    frame = good().assign(gender=lambda f: (f["gender"] == "M") + 1.0)
    frame.loc[3, "gender"] = 987654.0
    path = written(
        tmp_path / "a.sav", frame, variable_value_labels={"gender": {1.0: "f", 2.0: "m"}}
    )
    text = TEXT.format(data=path.name).replace("sex + region + tenure + size", "gender")
    spec = parse_spec(text.replace('"sex"', '"gender"'), tmp_path / "a.toml")
    assert "gender" not in with_file_labels(spec).labels


def test_equal_labels_of_two_levels_are_refused_with_the_remedy(tmp_path: Path) -> None:
    frame = good().assign(gender=lambda f: (f["gender"] == "M") + 1.0)
    text = TEXT.format(data="a.dta").replace("sex + region + tenure + size", "gender")
    spec = parse_spec(text.replace('"sex"', '"gender"'), tmp_path / "a.toml")
    for labels, words in (
        ({1: "x", 2: "x"}, "more than one level"), ({1: "All", 2: "y"}, "margin"),
    ):  # fmt: skip
        written(tmp_path / "a.dta", frame, variable_value_labels={"gender": labels})
        with pytest.raises(InputError, match=words) as caught:
            with_file_labels(spec)
        assert "[labels.gender] levels" in str(caught.value)


def test_labels_are_text_that_every_format_can_hold(tmp_path: Path) -> None:
    frame = good().assign(gender=lambda f: (f["gender"] == "M") + 1.0)
    path = written(
        tmp_path / "a.dta", frame, variable_value_labels={"gender": {1: "Bio\x07logy", 2: "\x02"}},
        column_labels=[f"The\x01 {name}" for name in frame],
    )  # fmt: skip
    table = open_table(path)
    assert isinstance(table, LabelledTable)
    assert table.described["gender"].labels == {"1": "Biology", "2": "2"}
    assert table.described["gender"].title == "The gender"


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_or_other_files_are_refused_without_a_value(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path / f"a.{ending}", good()[["weight", "salary"]])
    content = path.read_bytes()
    for damaged in (b"salary\n987654.321\n", content[: len(content) // 3], content[::-1]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read") as caught:
            whole(path)
        assert not any(word in str(caught.value) for word in CANARIES)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        open_table(path)


@given(st.data())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_damaged_files_are_read_or_refused(data: st.DataObject) -> None:
    """Bytes changed at random: a frame, or a plain error that quotes nothing.

    On about one such file of SPSS in four hundred, and now and then on one of the others, ReadStat
    itself ends the process that reads it. The damage is the same in every run."""
    ending = data.draw(st.sampled_from(ENDINGS))
    content = bytearray((GOLDEN / f"labelled_files.{ending}").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = Path(f"damaged.{ending}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda self: bytes(content))
        message = ""
        try:
            whole(path)
        except InputError as error:
            message = str(error)
    assert not message or str(path) in message


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_ends_the_process_that_reads_it_is_refused(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = GOLDEN / f"labelled_files.{ending}"
    dies = files._TRIAL.replace("    getattr(", "    import os; os.abort()\n    getattr(")
    assert dies != files._TRIAL
    monkeypatch.setattr(files, "_TRIAL", dies)
    with pytest.raises(InputError, match=f"{path.name} cannot be read .* may be damaged"):
        open_table(path)
    # A trial that cannot begin says nothing of the file.
    monkeypatch.setattr(files, "_TRIAL", "import a_module_that_is_nowhere")
    assert len(whole(path)) == len(expected())


def test_cells_of_an_outcome_that_are_no_numbers_are_counted_not_shown(tmp_path: Path) -> None:
    frame = good().astype({"salary": str})
    frame.loc[7, "salary"] = "987654,321 canary"
    path = written(tmp_path / "a.sav", frame[["gender", "weight", "salary"]])
    text = TEXT.format(data=path.name).replace("sex + region + tenure + size", "gender")
    spec = parse_spec(text.replace('"sex"', '"gender"'), tmp_path / "a.toml")
    with pytest.raises(InputError, match="'salary': 1 record with text that is no") as caught:
        read_survey(with_file_labels(spec))
    assert not any(word in str(caught.value) for word in (*CANARIES, str(CANARY_OUTCOME)))
