"""Releases of outcomes of every kind, from synthetic datasets made by hand. Truth: the arrays that
they were made from, their weighted means worked out here, and the programs of the README."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.build import model_of, read_design
from surveysynth.config.spec import load_spec
from surveysynth.inference import synthesis as synthesis_module
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.check import preview_lines
from surveysynth.release.microdata import Digits
from surveysynth.release.pipeline import release
from surveysynth.release.reader import read_release
from tests.release.documents.test_readme_programs import assert_recomputes, has_haven
from tests.surveys import NOISY, WEIGHT, MakeSpec, small_survey

pytestmark = pytest.mark.usefixtures("stand_in_mechanism")

YES = "=ja, \"`x`\""
SECTIONS = f"""
[outcomes.salary]
bounds = [-inf, 1e9]
center = 60000
spread = 0.5
[outcomes.benefit]
kind = "semicontinuous"
spikes = [0, 5000]
transform = {{ kind = "yeo_johnson", scale = 1000 }}
center = 1500
spread = 0.5
[outcomes.works]
kind = "binary"
levels = ["nein", '{YES}']
[outcomes.employed]
kind = "binary"
[outcomes.sector]
kind = "categorical"
levels = [3, 1, "none"]
{WEIGHT}"""
NAMES = ("salary", "benefit", "works", "employed", "sector")


def frame_of() -> pd.DataFrame:
    rng = np.random.default_rng(8)
    frame = small_survey()
    n = len(frame)
    return frame.assign(
        benefit=np.where(rng.random(n) < 0.5, 0.0, rng.uniform(100.0, 4_000.0, n)),
        works=rng.choice(["nein", YES], n),
        sector=rng.choice(["1", "none"], n),
    )


def datasets_by_hand(
    n: int, *, size: float | None = None
) -> dict[tuple[int, int], SyntheticDataset]:
    """A dataset of each of ten draws: zeros of either sign, spikes, positions of levels.

    Weights add up to ``size``, where one is given.
    """
    rng = np.random.default_rng(2)
    made = {}

    def outcome() -> np.ndarray[Any, Any]:
        benefit = np.where(rng.random(n) < 0.4, 0.0, rng.uniform(1.0, 9.0, n))
        benefit[:3] = [-0.0, 5_000.0, 1.25]
        positions = [rng.integers(0, levels, n) for levels in (2, 2, 3)]
        columns = [np.exp(rng.normal(10, 0.4, n)), benefit, *positions]
        return np.stack([column.astype(float) for column in columns], axis=1)

    for draw in range(1, 11):
        values, weight = outcome(), rng.uniform(50.0, 150.0, n)
        weight *= 1.0 if size is None else size / weight.sum()
        made[draw, 1] = SyntheticDataset(draw, 1, values, weight, values, weight)
    return made


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """In the place of the model's datasets those above."""

    def install(*, size: float | None = None) -> dict[tuple[int, int], SyntheticDataset]:
        made = datasets_by_hand(len(frame_of()), size=size)

        def synthesize(*_: Any, **__: Any) -> Iterator[SyntheticDataset]:
            yield from made.values()

        monkeypatch.setattr(synthesis_module, "synthesize", synthesize)
        return made

    return install


def spec_of(make_spec: MakeSpec, sections: str = SECTIONS, **lines: str) -> Path:
    path = make_spec(frame_of(), **{"privacy": NOISY, **lines})
    text = path.read_text(encoding="utf-8").replace('outcome = "salary"\n', "")
    path.write_text(text + sections, encoding="utf-8")
    return path


@pytest.mark.parametrize("data", ["survey.csv", "survey.parquet"])
def test_microdata_have_outcomes_as_a_person_knows_them(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Callable[..., Any], data: str
) -> None:
    made = by_hand()
    spec = spec_of(make_spec, data=data, tables='statistics = ["count", "proportion"]')
    release(spec, tmp_path / "out")
    read = read_release(tmp_path / "out")
    design = read_design(load_spec(spec))
    for key, dataset in made.items():
        dataset = Digits(design, 6).rounded(dataset)  # noqa: PLW2901
        frame = read.dataset(*key)
        first = dataset.outcome
        np.testing.assert_array_equal(frame["salary"], first[:, 0])
        np.testing.assert_array_equal(frame["benefit"], first[:, 1])
        assert frame["works"].tolist() == [["nein", YES][int(each)] for each in first[:, 2]]
        assert frame["employed"].dtype.kind == "i"
        assert frame["sector"].tolist() == [["3", "1", "none"][int(each)] for each in first[:, 4]]
        back = read.dataset(*key, positions=True)
        np.testing.assert_array_equal(back[list(NAMES)], first)
        np.testing.assert_array_equal(back["weight"], dataset.weight)


def test_zeros_are_written_as_zero(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Callable[..., Any]
) -> None:
    by_hand()
    release(spec_of(make_spec), tmp_path / "out")
    path = tmp_path / "out" / "release" / "microdata" / "draw_01_rep_01.csv"
    texts = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert {"0", "5000", "1.25"} <= set(texts["benefit"])
    assert not any(text.startswith("-") for text in texts["benefit"])
    assert set(texts["employed"]) == {"0", "1"}
    assert set(texts["sector"]) == {"3", "1", "none"}
    assert set(texts["works"]) == {"nein", f"'{YES}"}  # no formula for a spreadsheet


def test_tables_are_of_the_outcomes_that_they_suit(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Callable[..., Any]
) -> None:
    every = 'statistics = ["count", "total", "mean", "proportion"]'
    spec = spec_of(make_spec, tables=every)
    digits = Digits(read_design(load_spec(spec)), 6)
    made = {key: digits.rounded(data) for key, data in by_hand().items()}
    release(spec, tmp_path / "out")
    tables = read_release(tmp_path / "out").tables
    assert "outcome" not in tables["counts"]
    for name in ("means", "totals"):
        assert tables[name]["outcome"].unique().tolist() == ["salary", "benefit"]
    shares = tables["proportions"]
    assert shares["outcome"].unique().tolist() == ["works", "employed"]
    for column, name in ((2, "works"), (3, "employed")):
        values, weights = (
            np.concatenate([part(data) for data in made.values()])
            for part in (lambda data: data.outcome[:, column], lambda data: data.weight)  # noqa: B023
        )
        whole = shares[(shares["outcome"] == name) & (shares["field"] == "All")
                       & (shares["gender"] == "All")]  # fmt: skip
        assert whole["estimate"].item() == pytest.approx(
            np.average(values, weights=weights), rel=1e-12
        )
    html = (tmp_path / "out" / "release" / "tables" / "proportions.html").read_text()
    assert "the share of" in html


def test_the_files_say_what_is_declared(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Callable[..., Any]
) -> None:
    by_hand()
    labels = '[labels.works]\nlevels = { nein = "Not at work" }\n'
    spec = spec_of(make_spec, SECTIONS + labels, tables='statistics = ["proportion"]')
    release(spec, tmp_path / "out")
    folder = tmp_path / "out" / "release"
    columns = {c["name"]: c for c in json.loads((folder / "codebook.json").read_text())["columns"]}
    assert columns["benefit"]["declared"] == {
        "kind": "semicontinuous",
        "transform": "yeo_johnson(benefit/1000, power 0.5)",
        "spikes": [0.0, 5000.0],
    }
    assert "exactly 0 or 5000" in columns["benefit"]["meaning"]
    assert columns["salary"]["declared"]["upper"] == 1e9
    assert columns["works"]["type"] == "text"
    assert columns["works"]["levels"] == [
        {"code": "nein", "label": "Not at work"}, {"code": YES, "label": YES},
    ]  # fmt: skip
    assert columns["employed"]["type"] == "integer"
    assert columns["employed"]["declared"] == {"kind": "binary", "levels": ["0", "1"]}
    privacy = json.loads((folder / "privacy.json").read_text())
    declared = privacy["settings"]["declared_outcomes"]
    assert list(declared) == list(NAMES)
    assert declared["sector"] == {"kind": "categorical", "levels": ["3", "1", "none"]}
    (kinds,) = [each for each in privacy["assumptions"] if "kinds of outcomes" in each]
    for words in ("benefit (semicontinuous, spikes at 0, 5,000)", "sector (categorical: 3, 1, none",
                  "salary (continuous, to 1,000,000,000)"):  # fmt: skip
        assert words in kinds
    transforms = [each for each in privacy["assumptions"] if "transforms" in each]
    assert any(
        each.endswith("log(salary), yeo_johnson(benefit/1000, power 0.5)") for each in transforms
    )
    readme = (folder / "README.md").read_text()
    assert "categorical: 3, 1, none" in (folder / "dossier.md").read_text()
    assert "y is 1 for the last level" in readme


@pytest.mark.parametrize(
    ("file_format", "lines"),
    [("dta", 'statistics = ["count"]'), ("sav", 'statistics = ["mean"]'),
     ("dta", 'statistics = ["mean"]\nby = ["works", "employed"]')],
)  # fmt: skip
def test_programs_know_levels_that_are_numbers_in_the_files(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Callable[..., Any], file_format: str, lines: str
) -> None:
    by_hand()
    spec = spec_of(make_spec, tables=f'microdata = "{file_format}"\n{lines}')
    release(spec, tmp_path / "out")
    assert_recomputes(tmp_path / "out" / "release", r=has_haven())


def test_check_prints_kinds_and_public_constants(make_spec: MakeSpec) -> None:
    spec = load_spec(spec_of(make_spec))
    lines = preview_lines(spec, read_design(spec), model_of(spec))
    for words in (
        "Outcome: salary, as log(salary) (continuous, to 1,000,000,000).",
        "Outcome: benefit, as yeo_johnson(benefit/1000, power 0.5) "
        "(semicontinuous, spikes at 0, 5,000).",
        "Outcome: employed (binary: 0, 1).",
        "Outcome: sector (categorical: 3, 1, none).",
    ):
        assert words in lines


def test_an_amount_by_its_section_goes_through_the_model(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    section = "[outcomes.salary]\ntransform = { scale = 10000, power = 0.3 }\n"
    release(spec_of(make_spec, section, privacy="m = 3"), tmp_path / "out")
    read = read_release(tmp_path / "out")
    column = next(each for each in read.codebook["columns"] if each["name"] == "salary")
    assert column["declared"]["transform"] == "yeo_johnson(salary/10000, power 0.3)"
    # The guess of the stand-in has residual SD 0.5 about 0 on the scale of the transform.
    salary = read.dataset(1)["salary"].to_numpy() / 10_000.0
    size = 1.0 + np.abs(salary)
    back = np.where(salary < 0, -(size**1.7 - 1.0) / 1.7, (size**0.3 - 1.0) / 0.3)
    assert 0.4 < back.std() < 0.6
    assert_recomputes(tmp_path / "out" / "release", r=False)


SPLIT = """
[outcomes.salary]
kind = "semicontinuous"
split = 30000
transform = { kind = "yeo_johnson", scale = 10000, power = 0.3 }
bounds = [-1000000, inf]
center = [60000, 15000]
spread = 1.0
""" + WEIGHT


@pytest.mark.parametrize("spikes", ["", "spikes = [30000, 90000]\n"])
def test_an_amount_on_two_sides_is_one_column(
    make_spec: MakeSpec, tmp_path: Path, spikes: str
) -> None:
    section = SPLIT.replace("[outcomes.weight]", f"{spikes}[outcomes.weight]")
    spec = spec_of(make_spec, section, tables='statistics = ["share"]')
    release(spec, tmp_path / "out")
    read, folder = read_release(tmp_path / "out"), tmp_path / "out" / "release"
    above = "above 30000" if spikes else "30000 or above"
    names = [above, "below 30000", *(["30000", "90000"] if spikes else [])]
    shares = read.tables["shares"]
    whole = shares[(shares["field"] == "All") & (shares["gender"] == "All")]
    assert whole["level"].tolist() == names
    # Of one dataset the shares are those of its column as it is in the file.
    data = read.dataset(1)
    salary, weight = data["salary"].to_numpy(), data["weight"].to_numpy()
    # Without spikes an amount may be the split itself by the rounding of microdata.
    point = np.isin(salary, [30_000.0, 90_000.0]) & bool(spikes)
    assert point.any() == bool(spikes)
    assert salary.min() >= -1e6
    assert 0.05 < weight[(salary < 30_000) & ~point].sum() / weight.sum() < 0.95
    assert whole["estimate"].sum() == pytest.approx(1.0)
    # The guess of the stand-in has SD 0.5 about the split itself: means are taken .02 SDs inside.
    for sign in (1.0, -1.0):
        distance = sign * (salary[~point] - 30_000.0) / 10_000.0
        z = ((1.0 + distance[distance > 0]) ** 0.3 - 1.0) / 0.3
        assert 0.005 < z.mean() < 0.02
    column = next(each for each in read.codebook["columns"] if each["name"] == "salary")
    assert column["declared"]["split"] == 30_000.0
    assert "yeo_johnson((salary - 30000)/10000, power 0.3)" in column["meaning"]
    assert "yeo_johnson((30000 - salary)/10000, power 0.3) below 30000" in column["meaning"]
    privacy = json.loads((folder / "privacy.json").read_text())
    assert any("split at 30,000" in each for each in privacy["assumptions"])
    assert "split at 30,000" in (folder / "dossier.md").read_text()
