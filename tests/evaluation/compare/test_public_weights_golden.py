"""Samples with public weights against R's survey package (``golden/public_weights.R``, ``.json``).

The design is that of R's example ``apistrat``: three strata by type of school, sizes 4421, 755 and
1018, of which 100, 50 and 50 were drawn; the values are simulated. Rows of the sample in a
comparison equal svytotal and svymean, and counts of a release are the sample's own."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec
from surveysynth.evaluation.compare.comparison import compare
from surveysynth.release.pipeline import release

GOLDEN = Path(__file__).parents[2] / "golden"
RESULTS: dict[str, Any] = json.loads((GOLDEN / "public_weights.json").read_text())
RELATIVE = 1e-8

#: How the weights are declared, and R's design of that.
SIZES = "population_size = { E = 4421, H = 755, M = 1018 }"
WEIGHTS = {
    "stratum sizes": (SIZES, "strata"),
    "a column of weights": ("weight = 'pw'\nfpc = 'fpc'", "strata"),
    "weights that vary within strata": ("weight = 'adjusted'\nfpc = 'fpc'", "adjusted"),
}
PSEUDO = "mechanism = 'pseudo_posterior'"
STRICT = "mechanism = 'noisy_statistics'\nm = 10\nreplicates_per_draw = 1"
SPEC = """
[survey]
data = "public_weights.csv"
weights = "public"
strata = "stype"
{weights}
[synthesizer]
outcome = ["score", "enroll"]
inference = "{inference}"
covariance_by = []
chains = 8
draws = 60
warmup = 60
[privacy]
epsilon = 10.8
{privacy}
[tables]
by = ["stype", "awards"]
statistics = ["count", "total", "mean"]
[outcomes.score]
transform = {{ kind = "identity", scale = 100 }}
centre = 650
spread = 1.2
[outcomes.enroll]
centre = 600
spread = 0.6
"""


def spec_at(folder: Path, weights: str, privacy: str = PSEUDO) -> Path:
    shutil.copy(GOLDEN / "public_weights.csv", folder)
    path = folder / "spec.toml"
    inference = "debiased" if privacy == STRICT else "paper"
    path.write_text(SPEC.format(weights=weights, privacy=privacy, inference=inference))
    return path


def of_r(name: str, statistic: str, outcome: str | None) -> dict[str, list[float]]:
    key = statistic if outcome is None else f"{statistic}_{outcome}"
    found: dict[str, list[float]] = RESULTS[name][key]
    return found


@pytest.mark.parametrize("declared", WEIGHTS)
def test_rows_of_the_sample_are_those_of_r(tmp_path: Path, declared: str) -> None:
    weights, name = WEIGHTS[declared]
    spec = load_spec(spec_at(tmp_path, weights))
    survey = read_survey(spec)
    compared = compare(spec, survey, methods=["sample"])
    assert compared.methods == ("sample",)
    for (statistic, outcome), by_method in compared.tables.items():
        expected, table = of_r(name, statistic, outcome), by_method["sample"]
        rows = pd.DataFrame(RESULTS["rows"]).to_numpy().tolist()
        assert table[["stype", "awards"]].astype(str).to_numpy().tolist() == rows
        np.testing.assert_allclose(table["estimate"], expected["estimate"], rtol=RELATIVE)
        # Counts of whole strata are known, up to rounding.
        se = np.array(expected["se"])
        fixed = se < 1e-10 * np.abs(expected["estimate"])
        np.testing.assert_allclose(table["se"], np.where(fixed, 0.0, se), rtol=RELATIVE, atol=0)
    # The same by svyby, and without the fpc another number.
    by = RESULTS["svyby"]
    found = compared.tables["mean", "score"]["sample"].set_index(["stype", "awards"])
    if name == "strata":
        at = [(level, "All") for level in by["stype"]]
        np.testing.assert_allclose(found.loc[at, "se"], by["se"], rtol=RELATIVE)
        unlimited = np.array(by["se"]) / np.sqrt(1 - np.array([100, 50, 50]) / [4421, 755, 1018])
        assert (np.abs(found.loc[at, "se"] / unlimited - 1) > 0.01).all()


@pytest.mark.parametrize("privacy", [PSEUDO, STRICT], ids=["pseudo-posterior", "noisy statistics"])
@pytest.mark.parametrize("declared", ["stratum sizes", "weights that vary within strata"])
def test_counts_of_a_release_are_those_of_r(tmp_path: Path, declared: str, privacy: str) -> None:
    weights, name = WEIGHTS[declared]
    spec = spec_at(tmp_path, weights, privacy)
    made = release(spec, tmp_path / "out", seed=4)
    (count,) = made.tables["count"]
    expected = of_r(name, "count", None)
    np.testing.assert_allclose(count.frame["estimate"], expected["estimate"], rtol=1e-13)
    se = np.array(expected["se"])
    fixed = se < 1e-10 * np.abs(expected["estimate"])
    assert fixed.any() == (name == "strata")
    np.testing.assert_allclose(count.frame["se"], np.where(fixed, 0.0, se), rtol=1e-8, atol=0)
    np.testing.assert_allclose(count.frame["df"], RESULTS["df"], rtol=1e-12)
    own = compare(load_spec(spec), read_survey(load_spec(spec)), methods=["sample"])
    sample = own.tables["count", None]["sample"]
    if privacy == PSEUDO:  # which keeps the order of the records, and with it the last digit
        assert (count.frame["estimate"].to_numpy() == sample["estimate"].to_numpy()).all()
    # Means are synthetic: near R's, and not R's.
    for table in made.tables["mean"]:
        r = of_r(name, "mean", table.outcome)
        distance = np.abs(table.frame["estimate"] - r["estimate"]) / r["se"]
        assert 0.01 < distance.median() < 2.5
