"""A release read back. Truth: the tables that the run returned, and the written files read by
pyarrow; damaged folders made one at a time."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pyarrow.parquet
import pytest

from surveysynth.errors import InputError
from surveysynth.release.pipeline import release
from surveysynth.release.reader import read_release
from surveysynth.release.tables.table import stacked_frame
from tests.surveys import MakeSpec, small_survey

pytestmark = pytest.mark.usefixtures("stand_in_mechanism")


@pytest.mark.parametrize("data", ["survey.csv", "survey.parquet"])
def test_tables_and_datasets_come_back(make_spec: MakeSpec, tmp_path: Path, data: str) -> None:
    frame = small_survey()
    frame["field"] = frame["field"].map({"a": "01", "b": "=2", "c": "NA"})
    listed = '[labels.field.levels]\n"01" = "01"\n"=2" = "=2"\n"NA" = "NA"\n'
    spec = make_spec(frame, data=data, tables='flags = "statcan"', labels=listed)
    result = release(spec, tmp_path / "out")
    read = read_release(tmp_path / "out")
    assert list(read.tables) == ["counts", "means"]
    for statistic, stem in (("count", "counts"), ("mean", "means")):
        written = stacked_frame(result.tables[statistic])
        pd.testing.assert_frame_equal(read.tables[stem], written, check_exact=True,
                                      check_dtype=False)  # fmt: skip
        assert read.tables[stem]["n"].dtype == np.int64
        assert read.tables[stem]["is_margin"].dtype == bool
    assert read.private
    assert read.privacy["epsilon"] == 10.8
    assert read.keys == tuple((d, r) for d in (1, 2, 3) for r in (1, 2, 3, 4))
    for draw, replicate, dataset in read.datasets():
        assert [c["name"] for c in read.codebook["columns"]] == list(dataset.columns)
        assert set(dataset["field"]) == {"01", "=2", "NA"}
        path = read.folder / "microdata" / f"draw_{draw:02d}_rep_{replicate:02d}"
        by_arrow = (
            pyarrow.csv.read_csv(path.with_suffix(".csv"))
            if data.endswith("csv")
            else pyarrow.parquet.read_table(path.with_suffix(".parquet"))
        )
        for column in ("salary", "weight"):
            assert dataset[column].tolist() == by_arrow[column].to_pylist()
    assert "12 datasets" in repr(read)
    assert read_release(tmp_path / "out" / "release").keys == read.keys


def test_a_release_without_csv_tables_and_a_test_run(make_spec: MakeSpec, tmp_path: Path) -> None:
    release(make_spec(tables='formats = ["markdown"]'), tmp_path / "out", seed=1)
    read = read_release(tmp_path / "out")
    assert read.tables == {}
    assert not read.private
    assert len(read.dataset(3, 4)) == 240
    with pytest.raises(InputError, match=r"no dataset of draw 4.*draws 1 to 3"):
        read.dataset(4)


def test_what_is_no_release_is_told(make_spec: MakeSpec, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no release"):
        read_release(tmp_path)
    release(make_spec(), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    table, codebook = folder / "tables" / "means.csv", folder / "codebook.json"
    for path, content in (
        (table, table.read_text().replace("estimate", "estimates")),
        (table, re.sub(r"\n([^\n]*),[\d.]+,", r"\n\1,x,", table.read_text())),
        (table, 'a,"b'),
        (codebook, "{"),
        (codebook, "[]"),
        (codebook, json.dumps({"columns": []})),
    ):
        good = path.read_text()
        path.write_text(content)
        with pytest.raises(InputError, match="damaged"):
            read_release(folder)
        path.write_text(good)
    read = read_release(folder)
    (folder / "microdata" / "draw_01_rep_02.csv").unlink()
    with pytest.raises(InputError, match="missing"):
        read.dataset(1, 2)
    codebook.unlink()
    with pytest.raises(InputError, match="missing"):
        read_release(folder)
