"""Figures of a study: the drawn numbers against pandas, what is left out, labels."""

import itertools

import numpy as np
import pandas as pd
import pytest

from surveysynth.evaluation.methods import color_of, label_of
from surveysynth.evaluation.studies import figures
from surveysynth.release.figure_style import MARK, draw

LINE = "Simulation: 50 samples"
METHODS = ("laplace", "fbs_paper", "fbs")
M, BOUNDS = (1, 3), (1.8, 3.4)


@pytest.fixture(scope="module")
def cells():
    """Six cells of two tables by three methods at two bounds; the first count is a known total."""
    rng = np.random.default_rng(1)
    settings = [("sample", 0, np.inf)]
    settings += [(method, m, 2 * m * bound) for method, m, bound in
                 itertools.product(METHODS, M, BOUNDS)]  # fmt: skip
    rows = []
    for (method, m, epsilon), statistic, row in itertools.product(
        settings, ("count", "mean"), range(6)
    ):
        known = statistic == "count" and row == 0
        ratio = np.nan if known else 1.0 if method == "sample" else rng.lognormal(0.2, 0.3)
        rows.append(
            {
                "method": method, "m": m, "epsilon": epsilon, "statistic": statistic,
                "outcome": "" if statistic == "count" else "salary", "row": row, "truth": 100.0,
                "rmse": 1e-12 if known else 5.0 * ratio, "rmse_ratio": ratio,
                "coverage": rng.uniform(0.8, 1.0), "cv": rng.uniform(0.02, 0.2), "replicates": 50,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def words(figure):
    figure.draw_without_rendering()
    found = [figure.get_suptitle()]
    for panel in figure.axes:
        found += [panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel()]
        found += [text.get_text() for text in panel.get_yticklabels()]
        found += [text.get_text() for text in panel.texts]
    return found


def dots(panel):
    return [line for line in panel.lines if line.get_marker() in ("o", ".")]


def test_coverage_stands_against_the_coefficient_of_variation(cells):
    part = cells[(cells["m"] == 3) & np.isclose(cells["epsilon"], 10.8) | (cells["m"] == 0)]
    figure = draw(figures.coverage_against_cv, part, 0.95, LINE)
    panels = iter(figure.axes)
    for method in ("sample", *METHODS):
        for statistic in ("count", "mean"):
            (points,) = dots(next(panels))
            drawn = part[(part["method"] == method) & (part["statistic"] == statistic)]
            drawn = drawn[1:] if statistic == "count" else drawn  # the known total is left out
            np.testing.assert_allclose(points.get_xdata(), np.log10(drawn["cv"]))
            np.testing.assert_allclose(points.get_ydata(), drawn["coverage"])
    told = words(figure)
    assert "Counts: Sample" in told
    assert "FBS, inference as in the paper" in told
    assert LINE in told
    assert MARK not in told
    mean = part[(part["method"] == "fbs") & (part["statistic"] == "mean")]["coverage"]
    assert f"mean {mean.mean():.3f}, least {mean.min():.2f}" in told
    # The band of a coverage that is right, over 50 samples.
    (band,) = figure.axes[0].patches
    assert band.get_y() == pytest.approx(0.95 - 2 * np.sqrt(0.95 * 0.05 / 50))


def test_violins_show_the_synthesizers_at_every_m_and_bound(cells):
    figure = draw(figures.rmse_ratio_violins, cells, LINE)
    assert len(figure.axes) == 4
    for panel, (statistic, bound) in zip(
        figure.axes, itertools.product(("count", "mean"), BOUNDS), strict=True
    ):
        points = dots(panel)
        for each, (method, m) in zip(points, itertools.product(METHODS[1:], M), strict=True):
            part = cells[(cells["method"] == method) & (cells["m"] == m)
                         & (cells["statistic"] == statistic)
                         & np.isclose(cells["epsilon"], 2 * m * bound)]  # fmt: skip
            np.testing.assert_allclose(each.get_xdata(), np.log10(part["rmse_ratio"].dropna()))
    told = words(figure)
    assert "FBS, inference as in the paper, m = 3" in told
    assert "Counts, bound 1.8 a draw" in told
    assert not [each for each in told if "Laplace" in each]
    one = cells[(cells["m"] == 3) & np.isclose(cells["epsilon"], 10.8) | (cells["m"] == 0)]
    told = words(draw(figures.rmse_ratio_violins, one, LINE))
    assert "Laplace" in told
    assert "Means" in told


def test_a_total_that_weights_are_scaled_to_has_no_violin(cells):
    exact = cells.copy()
    exact.loc[(exact["row"] == 3) & (exact["method"] == "fbs"), "rmse_ratio"] = 1e-14
    figure = draw(figures.rmse_ratio_violins, exact, LINE)
    assert figure.axes[2].get_xlim()[0] > -2


def test_error_against_epsilon_is_the_median_cell(cells):
    figure = draw(figures.rmse_against_epsilon, cells, LINE)
    medians = cells.groupby(["statistic", "method", "epsilon"])["rmse_ratio"].median()
    lines = {line.get_label(): line for line in dots(figure.axes[1])}
    assert set(lines) == {
        "Laplace",
        *(f"{name}, bound {bound}" for name in ("FBS", "FBS, inference as in the paper")
          for bound in BOUNDS),
    }  # fmt: skip
    for label, method, epsilons in (
        ("Laplace", "laplace", [3.6, 6.8, 10.8, 20.4]),
        ("FBS, bound 3.4", "fbs", [6.8, 20.4]),
    ):
        np.testing.assert_allclose(10 ** lines[label].get_xdata(), epsilons)
        expected = [medians["mean", method].loc[each] for each in
                    sorted(set(cells["epsilon"])) if np.isclose(each, epsilons).any()]  # fmt: skip
        np.testing.assert_allclose(10 ** lines[label].get_ydata(), expected)


def test_colors_tell_kinds_of_inference_apart():
    methods = ("fbs", "fbs_paper", "fbs_published", "normal", "normal_paper")
    colors = [color_of(each, methods) for each in methods]
    assert len(set(colors)) == len(methods)
    assert label_of("fbp_published") == "FBP, as published"
