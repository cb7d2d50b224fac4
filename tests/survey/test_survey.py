"""Surveys as read: the file itself by the csv module, and canaries searched in public parts."""

import csv
import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.build import read_survey
from surveysynth.config.spec import Spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.survey.transforms import Transform
from tests.survey.messages import csv_bytes, make_spec, read_bytes
from tests.surveys import CANARIES, CANARY_OUTCOME, CANARY_WEIGHT, good, make_survey

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "ce2015q3.csv"
needs_real_data = pytest.mark.skipif(
    not REAL.is_file(), reason="../shared/data/ce2015q3.csv is not beside this checkout"
)


def test_csv_is_read_as_the_file_says(tmp_path: Path) -> None:
    frame = good()
    survey = read_bytes(
        tmp_path,
        csv_bytes(frame),
        survey='psu = "school"\ndesign_effect = 1.5\nfpc = "fraction"\npublic_columns = ["note"]',
        synthesizer='predictors = "field * gender + age"',
    )
    design, confidential = survey.design, survey.confidential
    rows = list(csv.DictReader(io.StringIO(csv_bytes(frame).decode())))
    assert design.n == len(rows) == 240
    assert set(design.frame) == {"field", "gender", "school", "age", "note"}
    for name in ("field", "gender", "school", "note"):
        assert design.frame[name].tolist() == [row[name] for row in rows]
    assert design.frame["age"].tolist() == [int(row["age"]) for row in rows]
    assert confidential.outcome[:, 0].tolist() == [float(row["salary"]) for row in rows]
    assert confidential.sampling_weight is not None
    assert confidential.sampling_weight.tolist() == [float(row["weight"]) for row in rows]
    assert design.levels == {"field": ("01", "02", "03", "04"), "gender": ("F", "M")}
    assert design.predictors == ("field", "gender", "age")
    assert design.dropped == 0
    assert design.strata is not None
    assert design.strata.tolist() == [int(row["field"]) - 1 for row in rows]
    assert design.psu is not None
    assert len(set(zip(design.psu, design.strata, strict=True))) == np.unique(design.psu).size
    assert design.fpc is not None
    assert design.fpc.tolist() == [0.1] * 4


def test_parquet_and_frame_give_the_same_as_csv(tmp_path: Path) -> None:
    frame = good().assign(field=lambda f: f["field"].astype(int))
    frame.to_parquet(tmp_path / "survey.parquet")
    (tmp_path / "survey.csv").write_bytes(csv_bytes(frame))
    read = [
        read_survey(make_spec(tmp_path, data=name)) for name in ("survey.csv", "survey.parquet")
    ]
    floats = frame.assign(field=lambda f: f["field"].astype(float))
    categories = frame.astype({"field": "category", "gender": "category"})
    read += [make_survey(frame), make_survey(floats), make_survey(categories)]
    first = read[0]
    for other in read[1:]:
        pd.testing.assert_frame_equal(other.design.frame, first.design.frame)
        assert other.design.levels == first.design.levels == {
            "field": ("1", "2", "3", "4"), "gender": ("F", "M"),
        }  # fmt: skip
        np.testing.assert_array_equal(other.confidential.outcome, first.confidential.outcome)
        np.testing.assert_array_equal(other.design.matrix.x_cells, first.design.matrix.x_cells)


def test_quoted_cells_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    notes = ['a, "quoted" word', "two\nlines", "two\r\nlines, more", '"', "", "plain"]
    frame = good().assign(note=[notes[i % len(notes)] for i in range(240)])
    for end in ("\n", "\r\n"):
        content = frame.to_csv(index=False, lineterminator=end).encode()
        survey = read_bytes(tmp_path, content, survey='public_columns = ["note"]')
        assert survey.design.frame["note"].tolist() == [" ".join(n.split()) for n in frame["note"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content.rstrip(b"\n"),
        lambda content: content + b"\n\n",
        lambda content: content.replace(b"salary", b'"salary"', 1),
        lambda content: b"\n" + content,
        lambda content: content.replace(b"note,", b'"no\nte",', 1),
    ],
)  # fmt: skip
def test_harmless_variations_of_a_csv(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    frame = good().assign(note="x")
    survey = read_bytes(tmp_path, change(csv_bytes(frame)))
    np.testing.assert_array_equal(survey.confidential.outcome[:, 0], frame["salary"])


def test_labels_fix_the_order_of_levels(tmp_path: Path) -> None:
    labels = (
        '[labels.field]\nlevels = { "04" = "D", "03" = "C", "02" = "B", "05" = "E", "01" = "A" }'
    )
    design = read_bytes(tmp_path, csv_bytes(good()), labels=labels).design
    # A labelled level without records stays: its cells are empty, which is no error.
    assert design.levels["field"] == ("04", "03", "02", "05", "01")
    assert "field[T.05]" not in design.matrix.columns


def test_a_psu_label_in_two_strata_is_two_psus() -> None:
    survey = make_survey(good(), psu="school")
    pairs = good()[["field", "school"]].drop_duplicates()
    assert survey.design.psu is not None
    assert survey.design.psu.max() + 1 == len(pairs) == 12


def test_by_may_be_empty_and_strata_absent() -> None:
    design = make_survey(good(), by=[], strata=None).design
    assert design.matrix.columns == ("Intercept",)
    assert (design.strata, design.psu, design.fpc) == (None, None, None)


def test_several_outcomes_keep_their_order() -> None:
    frame = good().assign(tax=lambda f: f["age"] * 10.0 - 300)
    frame["tax"] += np.random.default_rng(1).normal(size=len(frame)) * 100
    survey = make_survey(
        frame, outcome=["salary", "tax"], transforms=[Transform(), Transform("asinh", scale=100)]
    )
    np.testing.assert_array_equal(survey.confidential.outcome, frame[["salary", "tax"]])
    assert survey.design.transforms == (Transform(), Transform("asinh", scale=100))


def test_the_frame_given_is_not_changed() -> None:
    frame = good()
    before = frame.copy(deep=True)
    survey = make_survey(frame, public_columns=["note"])
    pd.testing.assert_frame_equal(frame, before)
    # Nor is it shared: it stays writable, and what is written does not reach the survey.
    for column in ("salary", "weight"):
        frame.loc[:, column] = 1.0
    np.testing.assert_array_equal(survey.confidential.outcome[:, 0], before["salary"])
    np.testing.assert_array_equal(survey.confidential.sampling_weight, before["weight"])


def test_text_of_a_survey_shows_no_confidential_value() -> None:
    survey = make_survey(good(), public_columns=["note"])
    for text in (repr(survey), str(survey), repr(survey.confidential), f"{survey.confidential}"):
        assert not any(canary in text for canary in CANARIES)
    assert "240" in repr(survey.confidential)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(survey)


def test_the_public_half_holds_no_outcome_and_no_weight() -> None:
    public = pickle.dumps(make_survey(good(), public_columns=["note"], psu="school").design)
    for value in (CANARY_OUTCOME, CANARY_WEIGHT):
        assert np.float64(value).tobytes() not in public
        assert str(value).encode() not in public
        assert np.float64(math.log(value)).tobytes() not in public


def test_confidential_arrays_are_read_only() -> None:
    confidential = make_survey(good()).confidential
    with pytest.raises(ValueError, match="read-only"):
        confidential.outcome[0, 0] = 1.0


def real_spec(**changes: str) -> Spec:
    return parse_spec(
        f"""
        [survey]
        data = "{REAL.as_posix()}"
        weight = "weight"
        population_size = 128_400_000
        {changes.get("survey", 'missing = "drop"')}
        [synthesizer]
        {changes.get("synthesizer", 'outcome = "income"')}
        [privacy]
        mechanism = "pseudo_posterior"
        epsilon = 10.8
        [tables]
        by = ["region", "sex"]
        """
    )


INCOME = 'outcome = "income"\n[outcomes.income]\ntransform = { kind = "asinh", scale = 10_000 }'


@needs_real_data
def test_real_survey_equals_the_file() -> None:
    survey = read_survey(real_spec(synthesizer=INCOME))
    with REAL.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [row for row in rows if row["region"]]
    assert (len(rows), survey.design.n, survey.design.dropped) == (6481, 6206, 275)
    assert survey.design.levels["region"] == ("Midwest", "Northeast", "South", "West")
    assert survey.design.matrix.formula == "region + sex + region:sex"
    assert survey.design.frame["region"].tolist() == [row["region"] for row in kept]
    np.testing.assert_array_equal(
        survey.confidential.outcome[:, 0], [float(row["income"]) for row in kept]
    )


@needs_real_data
def test_real_survey_messages() -> None:
    with pytest.raises(InputError, match="'region': 275 records"):
        read_survey(real_spec(survey="", synthesizer=INCOME))
    with pytest.raises(InputError, match=r"records where log\(income\)"):
        read_survey(real_spec())


@needs_real_data
def test_real_psu_codes_keep_their_zeros() -> None:
    given = 'missing = "drop"\npsu = "psu"\ndesign_effect = 2'
    survey = read_survey(real_spec(survey=given, synthesizer=INCOME))
    assert "01203" in set(survey.design.frame["psu"])
    assert survey.design.psu is not None
    assert survey.design.psu.max() + 1 == survey.design.frame["psu"].nunique()


def test_a_large_file_is_read_whole(tmp_path: Path) -> None:
    frame = good().drop(columns="note")
    body = csv_bytes(frame).split(b"\n", 1)[1]
    repeats = 417
    content = b"field,gender,school,age,fraction,weight,salary\n" + body * repeats
    (tmp_path / "survey.csv").write_bytes(content)
    spec = make_spec(tmp_path, survey='psu = "school"\ndesign_effect = 1.5\nfpc = "fraction"')
    survey = read_survey(spec)
    assert survey.design.n == 240 * repeats
