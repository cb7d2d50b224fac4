"""The documented recipe for a statistic, followed with a trimmed mean: one array function and one
row of the registry, and it is released and compared.

Truth: the definition, record by record; repeated samples. All of the statistic is in this file;
the package does not name it."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surveysynth
from surveysynth._support.types import FloatArray
from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.linearised import Linearised
from surveysynth.estimation.replication import preston_bootstrap
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import STATISTICS, Statistic
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.evaluation.compare.comparison import LAPLACE, compare
from surveysynth.evaluation.compare.folder import make_pictures, render_report
from surveysynth.release.pipeline import release
from surveysynth.release.reader import read_release
from tests.estimation.replicates import replicated
from tests.surveys import MakeSpec, small_survey

pytestmark = [pytest.mark.usefixtures("trimmed_mean"), pytest.mark.xdist_group("trimmed mean")]

TRIM = 0.1


# --- 1. One array function ---------------------------------------------------------------------


def trimmed(
    domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
) -> Linearised:
    """The mean of what lies between two quantiles of each row, both included: those at shares 0.1
    and 0.9 of its weight.

    With q the quantiles and W the winsorised values, u = w d (W - mean of W) / (N_d (1 - 2 TRIM)).
    """
    low, high = np.full(domains.n_rows, np.nan), np.full(domains.n_rows, np.nan)
    estimate, centre = low.copy(), low.copy()
    size = low.copy()
    order = np.argsort(outcome, kind="stable")
    for rows in domains.codes:
        for row in np.unique(rows):
            inside = order[rows[order] == row]
            w, y = weight[inside], outcome[inside]
            if not w.sum() > 0:
                continue
            share = np.cumsum(w) / w.sum()
            low[row] = y[np.searchsorted(share, TRIM)]
            high[row] = y[np.searchsorted(share, 1 - TRIM)]
            kept = (y >= low[row]) & (y <= high[row])
            size[row], estimate[row] = w.sum(), (w * y)[kept].sum() / w[kept].sum()
            centre[row] = (w * np.clip(y, low[row], high[row])).sum() / w.sum()

    def inside_of(rows: FloatArray) -> FloatArray:
        winsorised = np.clip(outcome, low[rows], high[rows])
        return weight * (winsorised - centre[rows]) / (size[rows] * (1 - 2 * TRIM))

    return Linearised(estimate, inside_of)  # type: ignore[arg-type]


# --- 2. One row of the registry ----------------------------------------------------------------

TRIMMED_MEAN = Statistic(
    name="trimmed_mean",
    plural="trimmed means",
    heading="Estimated trimmed mean",
    linearise=trimmed,
    explanation=(
        "A trimmed mean is the mean of the records of a cell between the quantiles at 0.1 and 0.9 "
        "of their weight; with their values winsorised at these to W, "
        "u = w d (W - mean of W) / (0.8 N_d)."
    ),
)


# --- That is all of it -------------------------------------------------------------------------

TABLES = """
statistics = ["trimmed_mean", "count"]
formats = ["csv", "html", "latex", "xlsx", "markdown", "svg"]
"""


@pytest.fixture
def trimmed_mean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The statistic in the registry."""
    with monkeypatch.context() as patched:
        patched.setitem(STATISTICS, TRIMMED_MEAN.name, TRIMMED_MEAN)
        yield


def by_definition(y: FloatArray, w: FloatArray) -> float:
    """Record by record, in plain Python."""
    pairs = sorted(zip(y.tolist(), w.tolist(), strict=True))
    total, sums, ends = sum(w.tolist()), 0.0, []
    for value, weight in pairs:
        sums += weight
        ends += [value] * (sum(sums >= p * total for p in (TRIM, 1 - TRIM)) - len(ends))
    low, high = ends
    kept = [(value, weight) for value, weight in pairs if low <= value <= high]
    return sum(v * k for v, k in kept) / sum(k for _, k in kept)


def test_the_estimate_is_its_definition_with_weights_of_replicates_too() -> None:
    frame = small_survey()
    domains = build_domains(frame, ["gender"], {"gender": ["f", "m"]})
    y, w = (frame[name].to_numpy(dtype=np.float64) for name in ("salary", "weight"))
    design = SampleDesign(np.zeros(len(frame), dtype=np.int64))
    groups = [np.ones(len(y), dtype=bool), *((frame["gender"] == g).to_numpy() for g in "fm")]
    expected = [by_definition(y[inside], w[inside]) for inside in groups]
    for linearisation in ("plain", "ratio"):
        given = {"weight": w, "outcome": y, "linearisation": linearisation}
        made = estimate_domains(domains, design, statistic="trimmed_mean", **given)  # type: ignore[arg-type]
        np.testing.assert_allclose(made.estimate, expected, rtol=1e-12)
        halves = preston_bootstrap(design, w, 5, np.random.default_rng(1))
        _, each = replicated(domains, halves, statistic="trimmed_mean", **given)
        last = halves.weights[:, -1]
        alone = [by_definition(y[inside], last[inside]) for inside in groups]
        np.testing.assert_allclose(each[-1], alone, rtol=1e-12)


def test_the_variance_is_that_of_repeated_samples() -> None:
    rng = np.random.default_rng(7)
    n, repeats = 400, 1500
    domains = build_domains(pd.DataFrame(index=range(n)), [], {})
    design = SampleDesign(np.zeros(n, dtype=np.int64))
    made = {name: np.empty((repeats, 2)) for name in ("trimmed_mean", "mean")}
    for repeat in range(repeats):
        y, w = rng.lognormal(0.0, 1.0, n), rng.uniform(1.0, 3.0, n)
        for name, values in made.items():
            one = estimate_domains(
                domains, design, weight=w, outcome=y, statistic=name, linearisation="plain"
            )
            values[repeat] = one.estimate[0], one.variance[0]
    truth = made["trimmed_mean"][:, 0].var(ddof=1)
    # The Monte Carlo error of a ratio of variances is about sqrt(2 / 1500) = 0.037.
    assert abs(made["trimmed_mean"][:, 1].mean() / truth - 1) < 0.13
    # Neither the variance of a mean nor one that forgets what trimming takes away would pass.
    assert abs(made["mean"][:, 1].mean() / truth - 1) > 0.3
    assert abs((1 - 2 * TRIM) ** 2 * made["trimmed_mean"][:, 1].mean() / truth - 1) > 0.13


@pytest.mark.usefixtures("stand_in_mechanism")
@pytest.mark.parametrize("survey", ["", "population_size = 30000"])
def test_it_is_released_in_every_format_and_recomputed(
    make_spec: MakeSpec, tmp_path: Path, survey: str
) -> None:
    release(make_spec(survey=survey, tables=TABLES), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    stems = {path.name for path in (folder / "tables").iterdir()} & {
        f"trimmed_means.{ending}" for ending in ("csv", "html", "tex", "md")
    }
    assert len(stems) == 4
    assert (folder / "figures" / "trimmed_means.svg").is_file()
    assert "Estimated trimmed mean" in (folder / "tables" / "trimmed_means.html").read_text()
    readme = (folder / "README.md").read_text()
    assert TRIMMED_MEAN.explanation in readme
    table = read_release(folder).tables["trimmed_means"]
    assert table["se"].gt(0).all()


@pytest.mark.usefixtures("stand_in_mechanism")
def test_it_is_compared_but_for_noise_of_unknown_scale(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = load_spec(make_spec(survey="population_size = 30000", tables=TABLES))
    made = compare(spec, read_survey(spec), seed=1)
    methods = made.tables["trimmed_mean", "salary"]
    assert set(methods) == {"sample", "fbs", "fbp"}
    assert LAPLACE in made.tables["count", None]
    frame = small_survey()
    y, w = (frame[name].to_numpy(dtype=np.float64) for name in ("salary", "weight"))
    assert methods["sample"]["estimate"].iloc[0] == pytest.approx(by_definition(y, w), rel=1e-12)
    page = render_report(made, make_pictures(made), test=True)
    assert "Trimmed means: salary" in page
    assert "Each of 1 tables" in page


def test_a_specification_knows_it_by_name(make_spec: MakeSpec) -> None:
    text = make_spec(tables='statistics = ["trimmed_men"]').read_text()
    with pytest.raises(InputError, match=r"'share' or 'trimmed_mean', got .*Did you mean 'tr"):
        parse_spec(text)


def test_no_file_of_the_package_names_it() -> None:
    package = Path(surveysynth.__file__).parent
    named = [path for path in package.rglob("*.py") if re.search("trimmed.?mean", path.read_text())]
    assert named == []
    assert pd.Series(list(STATISTICS)).is_unique
