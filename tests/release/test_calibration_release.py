"""Releases whose weights are calibrated to published totals, from datasets made by hand.

Truth: sums over the published files; residuals of a regression by NumPy; the programs of the
README in Python and R; the ledger, which is empty where totals cannot hold.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.config.build import model_of, read_design, read_survey
from surveysynth.config.spec import load_spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.evaluation.compare.comparison import CALIBRATED, compare
from surveysynth.evaluation.compare.tables import sample_tables
from surveysynth.release.check import preview_lines
from surveysynth.release.ledger import read_ledger
from surveysynth.release.pipeline import rebuild, release
from tests.release.documents.test_readme_programs import (
    assert_recomputes,
    program_of,
    published,
    run_python,
)
from tests.release.test_kinds import MakeSpec
from tests.release.test_shares_release import Install, by_hand, spec_of  # noqa: F401
from tests.release.test_strict_release import strict_spec
from tests.surveys import NOISY, small_survey, spec_text

pytestmark = pytest.mark.usefixtures("stand_in_mechanism", "stand_in_posterior")

STUDY = Path(__file__).parents[1] / "golden" / "calibration_study.json"
GENDER = {"f": 11_000.0, "m": 13_000.0}
EMPLOYED = {"0": 7_500.0, "1": 16_500.0}
SALARY = 24_500_000.0
MARGINS = """
[[calibration]]
by = ["gender"]
totals = { f = 11000, m = 13000 }
[[calibration]]
by = ["employed"]
totals = { "0" = 7500, "1" = 16500 }
[[calibration]]
amount = "salary"
totals = 24_500_000
"""
#: What plain amounts have, which the papers' mechanism takes.
PLAIN = MARGINS.replace(
    """[[calibration]]
by = ["employed"]
totals = { "0" = 7500, "1" = 16500 }
""", ""
)  # fmt: skip
PAPERS = "m = 3"
TABLES = "by = ['field', 'gender']\nstatistics = ['mean', 'count', 'total']"


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False)


def datasets(folder: Path) -> list[pd.DataFrame]:
    return [read(path) for path in sorted((folder / "microdata").glob("draw_*"))]


def residual_variance(data: pd.DataFrame, inside: Any, suffix: str) -> float:
    """The variance of a mean of salaries in strata of single records, by residuals."""
    y, w = data[f"salary{suffix}"].to_numpy(), data[f"weight_calibrated{suffix}"].to_numpy()
    d = data[f"weight{suffix}"].to_numpy()
    mean = (w * y)[inside].sum() / w[inside].sum()
    z = inside * (y - mean) / w[inside].sum()
    x = np.column_stack([data["gender"] == "f", data["gender"] == "m", y]) * 1.0
    root = np.sqrt(d)
    u = w * (z - x @ np.linalg.lstsq(x * root[:, None], z * root, rcond=None)[0])
    groups = pd.Series(u).groupby(data["field"].to_numpy())
    return float((groups.size() * groups.var(ddof=1)).sum())


def test_totals_hold_in_every_dataset_and_documents_say_so(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install  # noqa: F811
) -> None:
    by_hand(["salary", "employed"])
    spec = spec_of(make_spec, ["salary", "employed"], MARGINS, tables=TABLES)
    release(spec, tmp_path / "out", seed=1)
    folder = tmp_path / "out" / "release"
    made = datasets(folder)
    assert len(made) == 10
    for data in made:
        w = data["weight_calibrated"]
        np.testing.assert_allclose(w.groupby(data["gender"]).sum(), [*GENDER.values()], rtol=1e-10)
        by_level = w.groupby(data["employed"]).sum()
        np.testing.assert_allclose(by_level, list(EMPLOYED.values()), rtol=1e-10)
        assert (w * data["salary"]).sum() == pytest.approx(SALARY, rel=1e-10)
        assert (w > 0).all()
    counts = read(folder / "tables" / "counts.csv").set_index(["field", "gender"])
    for gender, total in GENDER.items():
        assert counts.loc[("All", gender), "estimate"] == pytest.approx(total, rel=1e-10)
        assert counts.loc[("All", gender), "se"] == 0.0
    assert (counts.loc["a", "se"] > 0).all()
    words = "raking, to published totals of gender; employed; salary"
    for name in ("README.md", "dossier.md"):
        assert words in (folder / name).read_text(encoding="utf-8")
    facts = json.loads((folder / "privacy.json").read_text())
    assert facts["settings"]["calibration"] == {
        "method": "raking", "bounds": None,
        "margins": [
            {"by": ["gender"], "totals": GENDER}, {"by": ["employed"], "totals": EMPLOYED},
            {"by": [], "amount": "salary", "totals": SALARY},
        ],
    }  # fmt: skip
    assert any(words in each for each in facts["statement"])
    assert any("totals of the calibration are public" in each for each in facts["assumptions"])
    codebook = json.loads((folder / "codebook.json").read_text())
    columns = {each["name"]: each for each in codebook["columns"]}
    assert columns["weight"]["roles"] == ["base weight"]
    assert columns["weight_calibrated"]["roles"] == ["weight"]
    assert "weight, calibrated to the published totals" in columns["weight_calibrated"]["meaning"]
    assert codebook["variance_pair"]["weight"] == "weight_calibrated"
    root = ET.parse(folder / "codebook.xml").getroot()
    weighted = [v.get("name") for v in root.iter("{ddi:codebook:2_5}var") if v.get("wgt") == "wgt"]
    assert weighted == ["weight_calibrated"]
    page = (folder / "tables" / "means.html").read_text(encoding="utf-8")
    assert "Weights are calibrated to published totals of gender; employed; salary" in page


def test_errors_are_of_residuals(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install  # noqa: F811
) -> None:
    """By the rule of partial synthesis, from the pair for variances."""
    by_hand(["salary"], pair=True)
    spec = spec_of(make_spec, ["salary"], PLAIN, tables=TABLES, privacy=PAPERS)
    release(spec, tmp_path / "out", seed=1)
    folder = tmp_path / "out" / "release"
    made = datasets(folder)
    for data, suffix in product(made, ["", "_for_variance"]):
        w = data[f"weight_calibrated{suffix}"]
        np.testing.assert_allclose(w.groupby(data["gender"]).sum(), [*GENDER.values()], rtol=1e-10)
        assert (w * data[f"salary{suffix}"]).sum() == pytest.approx(SALARY, rel=1e-10)
    means = read(folder / "tables" / "means.csv").set_index(["field", "gender"])
    inside = [((d["field"] == "a") & (d["gender"] == "f")).to_numpy() for d in made]
    w = [d["weight_calibrated"].to_numpy() for d in made]
    # Of the datasets of a draw, then of all: weighted sums and their ratio.
    sums = np.array([
        [(each[i] * d["salary"].to_numpy()[i]).sum(), each[i].sum()]
        for d, i, each in zip(made, inside, w, strict=True)
    ]).reshape(3, 4, 2).mean(axis=1)  # fmt: skip
    cell, ratio = means.loc[("a", "f")], sums[:, 0].sum() / sums[:, 1].sum()
    assert cell["estimate"] == pytest.approx(ratio, rel=1e-9)
    within = np.mean([
        residual_variance(d, i, "_for_variance") for d, i in zip(made, inside, strict=True)
    ])  # fmt: skip
    between = np.var((sums[:, 0] - ratio * sums[:, 1]) / sums[:, 1].mean(), ddof=1) / 3
    assert cell["se"] == pytest.approx(np.sqrt(within + between), rel=1e-7)


@pytest.mark.parametrize("pair", [False, True])
def test_the_programs_recompute_calibrated_tables(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install, pair: bool  # noqa: F811
) -> None:
    names = ["salary"] if pair else ["salary", "employed"]
    by_hand(names, pair=pair)
    spec = spec_of(
        make_spec, names, PLAIN if pair else MARGINS, privacy=PAPERS if pair else NOISY,
        tables="by = ['field', 'gender']\nstatistics = ['mean']",
    )  # fmt: skip
    release(spec, tmp_path / "out", seed=1)
    folder = tmp_path / "out" / "release"
    # Of draws the package averages w x and B, and the programs their product.
    assert_recomputes(folder, r=pair, error=1e-9 if pair else 1e-4)
    # Without residuals the error is another, so that the programs do test it.
    if pair:
        readme = folder / "README.md"
        program = program_of(folder, "python")
        readme.write_text(readme.read_text().replace(program, program.replace(
            "u = residuals(data, u)", "u = u"
        )))  # fmt: skip
        assert abs(run_python(folder)[1] / published(folder)[1] - 1.0) > 1e-3


def test_files_of_another_program_have_both_weights(
    make_spec: MakeSpec, tmp_path: Path, by_hand: Install  # noqa: F811
) -> None:
    by_hand(["salary", "employed"])
    tables = f"{TABLES}\nmicrodata = 'sav'"
    release(spec_of(make_spec, ["salary", "employed"], MARGINS, tables=tables), tmp_path / "out",
            seed=1)  # fmt: skip
    assert_recomputes(tmp_path / "out" / "release", r=False, error=1e-4)


def strict_margins(make_spec: MakeSpec, margins: str, **given: Any) -> Path:
    path = strict_spec(make_spec, **given)
    path.write_text(path.read_text(encoding="utf-8") + margins, encoding="utf-8")
    return path


FIELDS = '[[calibration]]\nby = ["field"]\ntotals = "{}"\n'
TWO = '[[calibration]]\nby = ["gender"]\ntotals = {{ f = {}, m = {} }}\n'


def test_a_release_is_rebuilt_without_the_file_of_totals(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    """Totals from a csv file are published with the specification."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "totals.csv").write_text("field,total\na,9000\nb,11000\nc,10000\n")
    spec = strict_margins(make_spec, FIELDS.format("totals.csv") + TWO.format(14_000, 16_000),
                          survey="population_size = 30000")  # fmt: skip
    release(spec, tmp_path / "out")
    (tmp_path / "in" / "totals.csv").unlink()
    made = rebuild(tmp_path / "out", tmp_path / "again")
    assert made.different == ()
    counts = read(tmp_path / "again" / "tables" / "counts.csv").set_index(["field", "gender"])
    np.testing.assert_allclose(
        counts.loc[[("a", "All"), ("All", "f"), ("All", "All")], "estimate"],
        [9_000, 14_000, 30_000], rtol=1e-10,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        (TWO.format(14_000, 17_000), "they add up to 31,000, but the population size is 30,000"),
        (TWO.format(-1, 30_001), "calibration[1] (gender = f): expected a total above zero"),
        ('[[calibration]]\nby = ["gender"]\ntotals = { f = 30000 }\n', "gender = m has no total"),
        ('[[calibration]]\nby = ["gender"]\ntotals = { f = 1e4, m = 1e4, x = 1e4 }\n',
         "no record of the survey is in gender = x"),
        (FIELDS.format("absent.csv"), "absent.csv"),
        (TWO.format(14_000, 16_000) + '[[calibration]]\nby = ["gender", "field"]\n'
         "totals = { f = { a = 5000, b = 5000, c = 5000 }, m = { a = 5000, b = 5000, c = 5000 }}",
         "calibration[2].totals: they contradict calibration[1]"),
    ],
)  # fmt: skip
def test_totals_that_cannot_hold_cost_nothing(
    make_spec: MakeSpec, tmp_path: Path, margins: str, words: str
) -> None:
    spec = strict_margins(make_spec, margins, survey="population_size = 30000")
    with pytest.raises(InputError) as caught:
        release(spec, tmp_path / "out", ledger=tmp_path / "ledger.jsonl")
    assert words in str(caught.value)
    assert not (tmp_path / "ledger.jsonl").exists()
    assert not (tmp_path / "out").exists()


def test_bounds_under_public_weights_cost_nothing(make_spec: MakeSpec, tmp_path: Path) -> None:
    """They are constants, so that it is known beforehand what ratios there must be."""
    spec = make_spec(small_survey().assign(weight=100.0), survey='weights = "public"')
    margins = TWO.format(23_000, 1_000) + "bounds = [0.5, 1.5]\n"
    spec.write_text(spec.read_text() + margins)
    with pytest.raises(InputError, match=r"calibration\[1\] \(gender = \w\): no weights with "):
        release(spec, tmp_path / "out", ledger=tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()


def test_public_weights_are_calibrated_and_published_beside(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    frame = small_survey().assign(weight=np.repeat([60.0, 80.0, 100.0], 80))
    spec = make_spec(frame, survey='weights = "public"')
    spec.write_text(spec.read_text() + TWO.format(9_000_000, 8_000_000))
    release(spec, tmp_path / "out", seed=1)
    folder = tmp_path / "out" / "release"
    data = datasets(folder)[0]
    ratio = (data["weight_calibrated"] / data["weight"]).groupby(data["gender"])
    np.testing.assert_allclose(ratio.max(), ratio.min(), rtol=1e-10)
    assert data["weight_calibrated"].sum() == pytest.approx(17_000_000, rel=1e-10)
    assert_recomputes(folder, r=True)


def test_other_bounds_continue_from_the_same_noise(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Bounds out of reach refuse the release; with others, nothing more is spent."""
    ledger, out = tmp_path / "ledger.jsonl", tmp_path / "out"
    margins = TWO.format(29_000, 1_000)
    spec = strict_margins(make_spec, margins + "bounds = [0.9, 1.1]\n",
                          survey="population_size = 30000")  # fmt: skip
    with pytest.raises(InputError) as caught:
        release(spec, out, ledger=ledger)
    for words in ("synthetic dataset 1 of draw 1: ", "(gender = ", "ratios from 0.9 to 1.1",
                  "[[calibration]] may change"):  # fmt: skip
        assert words in str(caught.value)
    (entry,) = read_ledger(ledger)
    (kept,) = (out / "confidential" / "drawn_noise").glob("*.json")
    numbers = json.loads(kept.read_text())["statistics"]
    learned = numbers.pop("learned")
    spec.write_text(spec.read_text().replace("[0.9, 1.1]", "[0.001, 50]"))
    release(spec, out, ledger=ledger)
    published_numbers = json.loads((out / "release" / "statistics.json").read_text())
    assert published_numbers["statistics"] == numbers
    assert published_numbers["learned"] == learned
    (last,) = read_ledger(ledger)
    assert (last.run, last.rho) == (entry.run, entry.rho)


def test_the_sample_is_calibrated_to_compare(make_spec: MakeSpec) -> None:
    """By ``ss.calibrate`` and ``ss.estimate_domains``, which know no specification."""
    spec = make_spec(small_survey())
    spec.write_text(spec.read_text() + TWO.format(14_000, 16_000))
    loaded, frame = load_spec(spec), small_survey()
    made = sample_tables(loaded, read_survey(loaded))["mean", "salary"]
    calibrated = ss.calibrate(frame, "weight", [{"by": "gender", "totals": {"f": 14e3, "m": 16e3}}])
    levels = {"field": ("a", "b", "c"), "gender": ("f", "m")}
    rows = ss.build_domains(frame, ["field", "gender"], levels)
    truth = ss.estimate_domains(
        rows, ss.SampleDesign(pd.factorize(frame["field"], sort=True)[0]),
        weight=calibrated.weight, outcome=frame["salary"].to_numpy(), statistic="mean",
        linearisation="plain", calibration=calibrated,
    )  # fmt: skip
    np.testing.assert_allclose(made["estimate"], truth.estimate, rtol=1e-10)
    np.testing.assert_allclose(made["se"], np.sqrt(truth.variance), rtol=1e-8)
    comparison = compare(loaded, read_survey(loaded), methods=["laplace", "fbs"], seed=1)
    assert comparison.left_out["laplace"] == CALIBRATED
    assert set(comparison.methods) == {"sample", "fbs"}


def test_check_names_the_margins(make_spec: MakeSpec) -> None:
    spec = make_spec(small_survey())
    spec.write_text(spec.read_text() + TWO.format(14_000, 16_000) + 'method = "linear"\n'
                    "bounds = [0.1, 9]\n")  # fmt: skip
    loaded = load_spec(spec)
    text = "\n".join(
        map(str, preview_lines(loaded, design := read_design(loaded), model_of(loaded)))
    )
    assert "Calibration: the regression estimator with ratios from 0.1 to 9, to published totals" \
        " of gender. It costs nothing." in text  # fmt: skip
    assert design.calibrated_by is None


def test_tables_in_one_call() -> None:
    survey = ss.example_survey(n=300)
    totals = {"Female": 36_000, "Male": 64_000}
    given: dict[str, Any] = {
        "mechanism": "pseudo_posterior", "epsilon": 10.8, "by": "gender", "m": 2, "seed": 1,
        "inference": "paper", "options": {"chains": 2},
    }  # fmt: skip
    made = ss.tables(survey, calibration=[{"by": "gender", "totals": totals}], **given)
    counts = made["count"].frame.set_index("gender")
    np.testing.assert_allclose(counts.loc[list(totals), "estimate"], list(totals.values()))
    assert (counts["se"] == 0).all()
    assert "calibrated by raking" in made.statement
    with pytest.raises(InputError, match="calibration: expected a list of mappings"):
        ss.tables(survey, calibration={"by": "gender", "totals": totals}, **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"calibration\[1\].by: 'sex' is not among the public"):
        ss.tables(survey, calibration=[{"by": "sex", "totals": totals}], **given)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("by = ['field']", "calibration[1].totals: missing"),
        ("by = ['field']\ntotals = true", "calibration[1].totals: expected totals by level"),
        ("by = ['field']\ntotals = 'totals.xlsx'", "a path that ends in .csv"),
        ("by = ['field']\ntotals = { a = 'x' }", "calibration[1]: totals.a: expected a number"),
        ("by = ['salary']\ntotals = { a = 1 }", "calibration[1].by: 'salary' is not an outcome w"),
        ("by = ['weight']\ntotals = { a = 1 }", "calibration[1].by: 'weight' is the weight"),
        ("by = ['feild']\ntotals = { a = 1 }", "Did you mean 'field'?"),
        ("by = ['field']\ntotals = { a = 1 }\nbounds = [1, 2, 3]", "got 3 numbers"),
        ("by = ['field']\ntotals = { a = 1 }\nbounds = [2.0, 3.0]", "calibration[1].bounds: "),
        ("by = ['field']\ntotals = { a = 1 }\nmethod = 'linear'", "'linear' needs them"),
        ("by = ['field']\ntotals = { a = 1 }\nlevels = 3", "calibration[1].levels: unknown key"),
        ("by = ['field']\ntotals = { a = 1 }\nmethod = 'raking'\n[[calibration]]\nby = ['gender']\n"
         "totals = { f = 1 }\nmethod = 'linear'", "calibration[2].method: all margins are"),
    ],
)  # fmt: skip
def test_mistakes_in_the_section(lines: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(spec_text() + f"[[calibration]]\n{lines}\n")
    assert words in str(caught.value)


def test_the_kept_study_covers_as_the_sample_with_shorter_intervals() -> None:
    """Of real municipalities, and the table of the page."""
    studies = Path(__file__).parents[2] / "vignettes" / "technical" / "studies.md"
    page = studies.read_text(encoding="utf-8")
    for found in json.loads(STUDY.read_text(encoding="utf-8")).values():
        plain, calibrated = (
            pd.DataFrame(found[kind]).set_index(["method", "statistic"])
            for kind in ("plain", "calibrated")
        )
        off = calibrated.loc["release", "coverage"] - calibrated.loc["sample", "coverage"]
        assert off.abs().max() <= 0.02
        assert (calibrated.loc["release", "length"] <= plain.loc["release", "length"]).all()
        for name, rows in (
            ("sample, calibrated", calibrated.loc["sample"]),
            ("release, not calibrated", plain.loc["release"]),
            ("release, calibrated", calibrated.loc["release"]),
        ):
            cells = (f"{row.coverage:.2f}, {row.length:.2f}" for row in rows.itertuples())
            assert f"| {name} | {' | '.join(cells)} |" in page
