"""Simultaneous intervals in a release: every statistic and file, and where they are refused.

Truth: the pointwise intervals of the same release, and t quantiles at the level of the note.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import surveysynth as ss
from surveysynth.errors import InputError
from surveysynth.release.folder.reader import Release
from surveysynth.release.pipeline import release
from surveysynth.spec.spec import parse_spec
from tests.release.test_statistics_release import KINDS, STATISTICS, frame_of, tables_of
from tests.surveys import spec_text

pytestmark = pytest.mark.usefixtures("stand_in_mechanism")

MakeSpec = Callable[..., Path]


@pytest.fixture
def both(make_spec: MakeSpec, tmp_path: Path) -> dict[str, Release]:
    found = {}
    for kind in ("pointwise", "simultaneous"):
        spec = make_spec(
            frame_of(), synthesizer=KINDS, privacy="m = 2\nreplicates_per_draw = 2",
            tables=tables_of([*STATISTICS, "mean"], f'intervals = "{kind}"'),
        )  # fmt: skip
        release(spec, tmp_path / kind, seed=3)
        found[kind] = ss.read_release(tmp_path / kind)
    return found


def test_intervals_are_wider_and_nothing_else_changes(
    both: dict[str, Release], tmp_path: Path
) -> None:
    for name, pointwise in both["pointwise"].tables.items():
        whole = both["simultaneous"].tables[name]
        numbers = ["estimate", "se", "df", "n"]
        pd.testing.assert_frame_equal(whole[numbers], pointwise[numbers])
        wider = (whole["ci_upper"] - whole["ci_lower"]) - (
            pointwise["ci_upper"] - pointwise["ci_lower"]
        )
        known = (pointwise["se"] > 0) & pointwise["ci_lower"].notna() & whole["ci_lower"].notna()
        assert (wider[known] > 0).mean() > 0.9, name  # ends of quantiles may stay where they are
        assert (wider[known] >= -1e-9).all(), name
    folder = tmp_path / "simultaneous" / "release"
    assert '"intervals": "simultaneous"' in (folder / "privacy.json").read_text()
    assert "95% simultaneous interval" in (folder / "README.md").read_text()
    page = (folder / "tables" / "means.html").read_text()
    level, *_ = re.findall(r"Each by itself is a ([0-9.]+)% interval", page)  # of salary
    assert "95% simultaneous interval" in page
    means = both["simultaneous"].tables["means"]
    means = means[means["outcome"] == "salary"]
    half = (means["ci_upper"] - means["ci_lower"]) / 2 / means["se"]
    expected = stats.t.ppf(0.5 + float(level) / 200, means["df"])
    known = np.isfinite(half) & (half > 0)
    np.testing.assert_allclose(half[known], expected[known], rtol=1e-3)


def test_a_study_judges_single_intervals() -> None:
    text = spec_text(
        privacy="epsilon = 10.8", tables='intervals = "simultaneous"',
        labels="[study]\nn = 200\nsize = 'size'",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"tables\.intervals: a study with \[study\] judges each"):
        parse_spec(text)


def test_in_python_and_misspelled() -> None:
    survey = ss.example_survey(n=400)
    given = {"mechanism": "pseudo_posterior", "epsilon": 10.8, "by": ["gender"], "m": 1,
             "inference": "paper", "seed": 1, "options": {"chains": 2}}  # fmt: skip
    made = ss.tables(survey, intervals="simultaneous", **given)
    assert all("Intervals are simultaneous" in " ".join(each.notes)
               for of in made.tables.values() for each in of)  # fmt: skip
    with pytest.raises(InputError, match="Did you mean 'simultaneous'"):
        ss.tables(survey, intervals="simultanous", **given)
