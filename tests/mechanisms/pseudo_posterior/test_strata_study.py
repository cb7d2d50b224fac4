"""What ``python -m tests.long_runs.strata_study`` found, and the rule that rests on it."""

import json
from pathlib import Path

import numpy as np
import pytest

from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from tests.long_runs import origin_study, strata_study
from tests.long_runs.strata_study import Setting

METHODS = Path(__file__).parents[3] / "vignettes" / "technical" / "methods.md"


@pytest.fixture(scope="module")
def found():
    return json.loads(strata_study.GOLDEN.read_text(encoding="utf-8"))


def enough(row):
    """Records per coefficient, in units of what is asked for."""
    return row["records_per_coefficient"] / row["least"]


def test_every_row_that_is_told_of_is_there(found) -> None:
    for part, settings in strata_study.PARTS.items():
        keys = {strata_study.key_of(row) for row in found[part]}
        assert keys == {(each.name, each.model, each.n, each.epsilon) for each in settings}


def test_where_the_rule_holds_one_record_moves_less_than_is_stated(found) -> None:
    for row in found["mechanism"]:
        assert enough(row) > 0.999, row["name"]
        assert row["pooled"], row["name"]
        assert row["largest_over_stated"] < 0.9, row["name"]
        assert row["refused"] == 0


def test_half_of_what_the_rule_asks_for_would_not_do(found) -> None:
    alike = [row for row in found["strata"] if row["random_numbers"] == "alike"]
    short = [row["largest_over_stated"] for row in alike if enough(row) < 0.5]
    sound = [row["largest_over_stated"] for row in alike if enough(row) > 0.9]
    assert len(short) >= 3
    assert min(short) > 1.0
    assert max(short) > 5.0
    assert len(sound) >= 2
    assert max(sound) < 0.9


def test_the_bound_counts_beside_records(found) -> None:
    """Ratios at different bounds agree by the rule, and do not at equal numbers of records."""
    rows = [
        row for row in found["strata"] if row["random_numbers"] == "alike" and enough(row) > 0.25
    ]
    product = np.log([enough(row) for row in rows])
    largest = np.log([row["median_over_stated"] for row in rows])
    records = np.log([row["records_per_coefficient"] for row in rows])
    assert np.corrcoef(product, largest)[0, 1] < -0.8
    assert np.corrcoef(product, largest)[0, 1] < np.corrcoef(records, largest)[0, 1]


def test_the_study_finds_what_is_known_to_move_too_far() -> None:
    """The measurement itself, on one database: it sees a stratum of five as it is, and not one that
    is pooled."""
    as_it_is = Setting("", "independent", 400, 1, smallest=5, pooled=False, draws=100)
    pooled = Setting("", "independent", 400, 1, smallest=5, draws=100)
    one, two = (strata_study.measured(each) for each in (as_it_is, pooled))
    assert one["largest_over_stated"] > 1.5
    assert two["largest_over_stated"] < 0.9
    assert one["records_per_coefficient"] < 5
    assert two["records_per_coefficient"] >= 20


def test_the_rule_is_the_one_that_was_measured(found) -> None:
    for row in (*found["strata"], *found["mechanism"]):
        settings = MechanismSettings(epsilon=row["epsilon"], m=strata_study.M)
        assert row["least"] == pytest.approx(settings.least_records, rel=1e-3)
    assert found["settings"]["changes"] == [each.name for each in strata_study.CHANGES]
    assert origin_study.M == strata_study.M


def test_the_methods_show_these_figures(found) -> None:
    text = METHODS.read_text(encoding="utf-8").partition("### 2.10")[2].partition("### 2.11")[0]
    for row in (*found["strata"], *found["mechanism"]):
        assert f" {row['largest_over_stated']:.2f} |\n" in text, row["name"]
