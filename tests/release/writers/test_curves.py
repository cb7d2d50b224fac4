"""Figures of learned transforms. Truth: published counts, read back from the drawn bars, and
chances of bins by SciPy's normal distribution at the ends of the published curve."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from surveysynth.config.formats import FORMATS
from surveysynth.mechanisms.learned.histogram import learned_design, noisy_histograms
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.release.tables.labels import ColumnLabel, Labels
from surveysynth.release.writers.curves import curves_figure, curves_of, write
from tests.mechanisms.learned.learned_cases import survey_of

HOSTILE = "<script>alert(1)</script> & $x_1^2$"


def test_bars_are_the_noisy_counts_and_lines_the_curves(tmp_path: Path) -> None:
    survey = survey_of(900)
    histograms = noisy_histograms(
        survey.design, survey.confidential, 20.0, "gaussian", SeededNoise(np.random.default_rng(1))
    )
    outcomes = learned_design(survey.design, histograms).outcomes
    labels = Labels({"income": ColumnLabel(title=HOSTILE)})
    curves = curves_of(outcomes, histograms, labels)
    figure = curves_figure(curves, "Privacy.")
    panels = [(0, 0), (1, 0), (1, 1)]  # income; tax above and below 0
    assert len(figure.axes) == len(panels)
    for panel, (number, side) in zip(figure.axes, panels, strict=True):
        counts = histograms[number].counts[side]
        assert [bar.get_height() for bar in panel.patches] == counts.sum(axis=0).tolist()
        expected = np.zeros(64)
        learned = outcomes[number].learned
        assert learned is not None
        for stratum, curve in enumerate(learned.curves[side]):
            chances = np.diff(stats.norm.cdf(curve[::4]))
            expected += chances / chances.sum() * counts[stratum].sum()
        drawn = np.asarray(panel.lines[0].get_ydata(), dtype=np.float64)
        assert drawn == pytest.approx(expected, rel=1e-6, abs=1e-6)
    for name, ending in itertools.product("ab", ("svg", "png")):
        path = tmp_path / name / f"transforms.{ending}"
        write(curves, "Privacy.", path, FORMATS[ending])
    for ending in ("svg", "png"):
        first, second = ((tmp_path / name / f"transforms.{ending}").read_bytes() for name in "ab")
        assert first == second
    text = (tmp_path / "a" / "transforms.svg").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "Privacy." in text
