"""Nothing confidential is published. Truth: planted values, and two databases one record apart.

The real mechanism runs here. Numbers are compared as numbers, so that a leak in another notation
is found as well, and as bytes.
"""

import json
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.release.pipeline import release
from tests.surveys import MakeSpec, small_survey

CANARY_OUTCOMES = [7319.4285174, 18427.9316582, 61538.2947163]
CANARY_WEIGHTS = [13.7294618535, 241.8659347291, 57.3918264705]
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")

#: The fields that carry synthetic values; all others are public and fixed beforehand.
SYNTHETIC_TABLE_COLUMNS = {"estimate", "se", "df", "ci_lower", "ci_upper"}
SYNTHETIC_MICRODATA_COLUMNS = {"salary", "weight"}
#: Cells of numbers in each format for readers; marks of footnotes and flags follow from them.
CELLS = {
    ".html": (re.compile(r'(<td [^>]*headers="[^>]*>)[^\n]*(</td>)'), r"\1\2"),
    ".tex": (re.compile(r"( & (\\textbf\{)?[\d<,]|\\tnote)[^\n]*\\\\"), ""),
    ".md": (re.compile(r"(\| )(\*\*|<sup>.</sup> )*[\d<,][^\n]*\|"), r"\1"),
    ".ods": (
        re.compile(r'<table:table-cell [^>]*value-type="float"[^>]*>.*?</table:table-cell>'), ""
    ),
    ".xlsx": (re.compile(r'(<c r="[C-F]\d+"[^>]*>)<v>[^<]*</v>(</c>)'), r"\1\2"),
}
EVERY_FORMAT = 'formats = ["csv", "html", "latex", "xlsx", "ods", "markdown", "svg"]'

SETTINGS = {
    "survey": "population_size = 30000",
    "privacy": "epsilon = 24.0\nm = 2",
    "tables": EVERY_FORMAT,
}


def planted_survey() -> pd.DataFrame:
    """Canaries in the first records, ordinary enough not to stop the mechanism."""
    frame = small_survey(600)
    frame.loc[:2, "salary"] = CANARY_OUTCOMES
    frame.loc[:2, "weight"] = CANARY_WEIGHTS
    return frame


def forbidden_numbers(frame: pd.DataFrame, confidential: Path) -> np.ndarray:
    """Canaries in several disguises, sample statistics, and every realised value."""
    y, w = frame["salary"].to_numpy(), frame["weight"].to_numpy()
    planted = np.array(CANARY_OUTCOMES), np.array(CANARY_WEIGHTS)
    disguises = [f(values) for values in planted for f in (np.array, np.log, np.log10, np.sqrt)]
    disguises += [planted[1] / w.sum(), planted[1] * 30000 / w.sum(), planted[0] * planted[1]]
    statistics = [
        f(v)
        for v in (y, w, np.log(y), np.log(w))
        for f in (np.min, np.max, np.mean, np.std, np.sum)
    ]
    statistics.append(np.sum(w * y) / np.sum(w))
    realised = json.loads((confidential / "realised.json").read_text())
    del realised["target_epsilon"], realised["target_bound"], realised["kept_draws"]
    values = [float(text) for text in NUMBER.findall(json.dumps(realised))]
    records = (
        pd.read_csv(confidential / "records.csv")
        if (confidential / "records.csv").exists()
        else pd.read_parquet(confidential / "records.parquet")
    )
    extremes = records.drop(columns="record").agg(["min", "max", "mean"]).to_numpy().ravel()
    every = np.concatenate(
        [*disguises, statistics, values, extremes, records["lipschitz"].nlargest(20)]
    )
    every = np.abs(every[np.isfinite(every)])
    # Round numbers (a weight of 1, a count) occur anywhere.
    return np.array([v for v in every if float(f"{v:.5g}") != v])


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream)
    except zlib.error:
        return stream


def text_of(path: Path) -> str:
    """The text of a file; of a workbook and a pdf that of its parts, one after the other."""
    if path.suffix == ".png":
        return ""  # pixels; its bytes are searched like those of every file
    if path.suffix == ".pdf":
        streams = re.findall(rb"stream\r?\n(.*?)endstream", path.read_bytes(), re.DOTALL)
        return "\n".join(_inflated(each).decode("latin-1") for each in streams)
    if path.suffix not in (".xlsx", ".ods"):
        return path.read_text(encoding="utf-8")
    with zipfile.ZipFile(path) as parts:
        return "\n".join(parts.read(name).decode() for name in sorted(parts.namelist()))


def published_numbers(folder: Path) -> Iterator[tuple[Path, np.ndarray]]:
    """All numbers of every public file."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix == ".parquet":
            numbers = pd.read_parquet(path).select_dtypes("number").to_numpy().ravel()
        else:
            # Thousands are grouped in what readers see; a csv separates fields with commas.
            text = text_of(path)
            text = text.replace(",", " ") + " " + re.sub(r"(?<=\d),(?=\d{3})", "", text)
            numbers = np.array([float(found) for found in NUMBER.findall(text)])
        yield path, np.abs(numbers)


def assert_nothing_leaks(folder: Path, forbidden: np.ndarray) -> None:
    """No public number within 1e-8 of a forbidden one."""
    forbidden = np.sort(forbidden)
    for path, numbers in published_numbers(folder):
        for near in (0, -1):
            index = np.clip(np.searchsorted(forbidden, numbers) + near, 0, forbidden.size - 1)
            gap = np.abs(numbers - forbidden[index]) / forbidden[index]
            assert not (gap < 1e-8).any(), (path, numbers[gap < 1e-8])


@pytest.mark.parametrize(
    ("data", "tables", "endings"),
    [
        ("survey.csv", EVERY_FORMAT.replace('"svg"]', '"svg", "png", "pdf"]'),
         {".csv", ".html", ".tex", ".xlsx", ".ods", ".md", ".json", ".svg", ".png", ".pdf"}),
        # Of the data's format the microdata alone depend.
        ("survey.parquet", 'formats = ["csv"]', {".csv", ".parquet", ".md", ".json"}),
    ],
    ids=["survey.csv", "survey.parquet"],
)  # fmt: skip
def test_planted_values_and_realised_values_reach_no_public_byte(
    make_spec: MakeSpec, tmp_path: Path, data: str, tables: str, endings: set[str]
) -> None:
    frame = planted_survey()
    spec = make_spec(frame, data=data, **{**SETTINGS, "tables": tables})
    out = tmp_path / "out"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "surveysynth",
            "release",
            str(spec),
            "--out",
            str(out),
            "--seed",
            "4",
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    forbidden = forbidden_numbers(frame, out / "confidential")
    assert forbidden.size > 60
    assert_nothing_leaks(out / "release", forbidden)
    files = [p for p in (out / "release").rglob("*") if p.is_file()]
    assert endings <= {p.suffix for p in files}
    public = [p.read_bytes() for p in files]
    public += [text_of(p).encode() for p in files if p.suffix in (".xlsx", ".ods", ".pdf")]
    for value in [*CANARY_OUTCOMES, *CANARY_WEIGHTS]:
        needles = [repr(value).encode(), f"{value:.6f}".encode(), f"{value:,.5f}".encode()]
        needles += [struct.pack("<d", value), struct.pack(">d", value)]
        for content in [*public, done.stdout, done.stderr]:
            assert not any(needle in content for needle in needles)


def test_the_search_finds_a_leak(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n7.319428517e+03\n")
    with pytest.raises(AssertionError):
        assert_nothing_leaks(tmp_path, np.array([1.5, 7319.4285170001]))


@pytest.mark.parametrize(
    ("protection", "tables"),
    [
        ('risk = "none"', 'formats = ["csv", "html"]'),
        ("epsilon = 24.0\nm = 2", EVERY_FORMAT),
        ('epsilon = 24.0\nm = 2\nrisk = "count"\nallow = ["shared_weights"]',
         'formats = ["csv", "html"]'),
    ],
    ids=["no risk", "largest", "count"],
)  # fmt: skip
def test_two_databases_one_record_apart_differ_in_synthetic_fields_alone(
    make_spec: MakeSpec, tmp_path: Path, protection: str, tables: str
) -> None:
    frame = small_survey(600)
    outs = []
    for name, factor in (("a", 1.0), ("b", 1.7)):
        changed = frame.copy()
        changed.loc[5, ["salary", "weight"]] *= factor
        spec = make_spec(changed, **{**SETTINGS, "privacy": protection, "tables": tables})
        outs.append(release(spec, tmp_path / name, seed=11).out / "release")
    a, b = outs
    names = sorted(str(p.relative_to(a)) for p in a.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(b)) for p in b.rglob("*") if p.is_file())
    different = False
    for name in names:
        if name.endswith(".csv"):
            left, right = pd.read_csv(a / name), pd.read_csv(b / name)
            synthetic = (
                SYNTHETIC_TABLE_COLUMNS
                if name.startswith("tables")
                else SYNTHETIC_MICRODATA_COLUMNS
            )
            assert left.drop(columns=synthetic, errors="ignore").equals(
                right.drop(columns=synthetic, errors="ignore")
            )
            assert synthetic <= set(left.columns)
            different |= not left.equals(right)
        elif name.startswith("figures"):
            texts = [re.findall(r"<text[^>]*>([^<]*)</text>", text_of(f / name)) for f in outs]
            words = [[t for t in found if not re.fullmatch(r"[−\d,.]+", t)] for found in texts]
            assert words[0] == words[1], name
            assert len(words[0]) > 12
        elif name.startswith("tables"):
            cells, rest = CELLS[Path(name).suffix]
            left_page, right_page = (cells.sub(rest, text_of(f / name)) for f in outs)
            assert left_page == right_page, name
            if not name.endswith("all_tables.tex"):
                assert len(left_page) < len(text_of(a / name)), name
        else:
            assert (a / name).read_bytes() == (b / name).read_bytes(), name
    assert different
