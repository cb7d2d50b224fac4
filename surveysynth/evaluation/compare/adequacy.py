"""Adequacy of the model: published tables compared with the confidential sample, on demand.

All results are confidential, including the number of rows that lie far from the sample. No decision
of a release rests on them. ``write_adequacy`` writes page and rows, for the owner alone to read.
"""

import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import stdtrit

from surveysynth._support.page import Picture
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.estimates import Estimates, StoredTables
from surveysynth.estimation.statistics import LEVEL, TABLE, statistic_of
from surveysynth.evaluation.compare.tables import (
    ROUNDING,
    Key,
    answered,
    by_table,
    sample_tables,
    stacked,
    without_flags,
)
from surveysynth.evaluation.style import PageTable, Row, cells, columns, heading_of, page
from surveysynth.inference.synthesis import SyntheticDataset, synthesize
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationStatistics,
)
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    published_sums,
    record_scores,
    record_sums,
)
from surveysynth.models.base import Model, psu_codes
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.figure_style import FAINT, INK, MARK, WARNING, draw, new_figure, png_bytes
from surveysynth.release.files import Published
from surveysynth.release.folder import ADEQUACY_PAGE, ADEQUACY_ROWS
from surveysynth.release.tables.layout import show_ratio
from surveysynth.release.tables.table_builder import estimates_for
from surveysynth.survey.survey import Confidential, Survey

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: A row farther from the sample than this, in expected errors, is one in a hundred.
FAR = 2.576
#: Simulated releases that the test for all rows is made from.
SIMULATIONS, BATCH = 2000, 100
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class ExpectedError:
    """The expected distance of the sample from the published values, for D rows of all tables.

    pull (D,): predicted less published; known (D, D): W + G S G'; spread (D, D): between ``draws``
    draws, (1 + 1/m) B or b/m and what datasets of a draw differ by, which has the variances within
    (D,); scale (D,): the unit of each row over that of its linearized variable.
    """

    pull: FloatArray
    known: FloatArray
    spread: FloatArray
    within: FloatArray
    draws: int
    scale: FloatArray

    @property
    def error(self) -> FloatArray:
        """Expected errors (D,), longer for variances from few draws, so that 2.6 are 1%."""
        return self.scale * self._error(np.diag(self.spread))

    def _error(self, spread: FloatArray) -> FloatArray:
        """Return errors (.., D) where draws have the variances spread (.., D)."""
        total = np.diag(self.known) + np.maximum(spread - self.within, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            df = (self.draws - 1) * (total / spread) ** 2
        longer = stdtrit(np.fmin(df, 1e9), 0.995) / FAR
        return np.asarray(np.sqrt(total) * longer)

    def farthest(self, rows: BoolArray) -> FloatArray:
        """Return the farthest of these rows (D,) in each of many simulated releases, in errors.

        From the covariances, with variances between draws estimated anew each time.
        """
        inside = np.ix_(rows, rows)
        own = replace(
            self, known=self.known[inside], spread=self.spread[inside], within=self.within[rows]
        )
        rng, count, spread = np.random.default_rng(0), int(rows.sum()), np.diag(own.spread)
        known, drawn = _root(own.known), _root(own.spread)
        kept = np.sqrt(np.maximum(1.0 - own.within / np.maximum(spread, TINY), 0.0))
        found = []
        for _ in range(SIMULATIONS // BATCH):
            between = rng.standard_normal((self.draws, BATCH, count)) @ drawn.T
            apart = rng.standard_normal((BATCH, count)) @ known.T + kept * between[0]
            error = own._error((between[1:] ** 2).mean(axis=0))
            found.append(np.abs(apart / error).max(axis=1))
        return np.concatenate(found)

    def p_value(self, difference: FloatArray) -> float:
        """Return the chance that some row is as far off as the farthest, from errors (D,)."""
        rows = np.isfinite(difference)
        if not rows.any():
            return 1.0
        beyond = self.farthest(rows) >= np.abs(difference[rows]).max()
        return float((1 + beyond.sum()) / (1 + beyond.size))


def _root(covariance: FloatArray) -> FloatArray:
    """Return L (D, D) with L L' the covariance, which rounding may have made indefinite."""
    sd = np.sqrt(np.maximum(np.diag(covariance), TINY))
    values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
    return np.asarray(sd[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))


Addends = Callable[[Confidential], FloatArray]
"""From a dataset to what each record adds to the sums that the mechanism knows, f (n, P)."""


def expected_error(
    tables: Sequence[tuple[Estimates, StoredTables]],
    datasets: Sequence[SyntheticDataset],
    addends: Addends,
    noisy: tuple[FloatArray, FloatArray] | None,
    *,
    unit: IntArray | None = None,
    weights: FloatArray | None = None,
) -> ExpectedError:
    """Return the expected errors of the rows of all tables, one after another.

    tables: collectors without datasets, each with the rule that it keeps its tables by; datasets:
    as the sample would have been, an even number for each draw, draw after draw; addends: f of the
    records of a dataset; noisy: their sums (P,) with noise, and its variances (P,), None for the
    pseudo-posterior; unit: PSUs (n,) whose records depend on each other, None for independent
    records; weights: risk weights (n,) of a pseudo-posterior.
    """
    for each in datasets:
        for estimates, _ in tables:
            estimates.add(each)
    columns = [each for estimates, kept in tables for each in kept.of(estimates)]
    s = np.stack([
        np.concatenate([of.estimate(number) for of in columns]) for number in range(len(datasets))
    ])  # fmt: skip
    totals, moments = _within_draws(columns, datasets, addends, unit)
    rows, draws = s.shape[1], datasets[-1].draw
    of_h, covariance, of_f = moments[:rows, :rows], moments[rows:, :rows], moments[rows:, rows:]
    added = np.zeros(len(of_f)) if noisy is None else noisy[1]
    # G (D, P) = C' (V + S)^-1, with f of one size, and a sum that is zero left out.
    size = np.sqrt(np.diag(of_f) + added)
    used = size > np.sqrt(TINY)
    size = np.where(used, size, 1.0)
    scaled = of_f / np.outer(size, size) + np.diag(added / size**2)
    solved = np.linalg.pinv(scaled, rcond=1e-10, hermitian=True) @ (covariance / size[:, None])
    gain = np.asarray((solved / size[:, None] * used[:, None]).T)
    explained = gain @ of_f @ gain.T
    left = of_h - gain @ covariance - covariance.T @ gain.T + explained
    known = left + (gain * added) @ gain.T
    if weights is not None:
        known = known + explained * weights.var() / weights.mean() ** 2
    if noisy is None:
        pull, spread, within = np.zeros(rows), _between(s, draws) / draws, np.zeros(rows)
    else:
        pull = gain @ (noisy[0] - totals.mean(axis=0))
        spread = _between(s - totals @ gain.T, draws) * (1.0 + 1.0 / draws)
        within = np.diag(left) * draws / len(datasets)
    scale = np.concatenate([of.scale for of in columns])
    return ExpectedError(scale * pull, known, spread, within, draws, scale)


def _within_draws(
    columns: Sequence[Any],
    datasets: Sequence[SyntheticDataset],
    addends: Addends,
    unit: IntArray | None,
) -> tuple[FloatArray, FloatArray]:
    """Return sums of f (datasets, P), and moments within draws of estimates and sums together.

    columns: of all tables, with the linearized variables of each dataset.
    """
    sums, pairs = list[FloatArray](), len(datasets) // 2
    # Pairs of datasets of one draw give covariances within draws; of many records a few suffice.
    chosen = min(pairs, max(LEAST_PAIRS, -(-MOMENT_RECORDS // len(datasets[0].outcome))))
    of_moments = set(np.linspace(0, pairs - 1, chosen).astype(int).tolist())
    moments, terms = np.zeros(()), list[Any]()
    for number, dataset in enumerate(datasets):
        outcome = dataset.outcome
        if dataset.missing is not None:  # tables have these imputed, and sums do not
            outcome = np.where(dataset.missing, np.nan, outcome)
        f = addends(Confidential(outcome, dataset.weight))
        sums.append(f.sum(axis=0))
        if number // 2 not in of_moments:
            continue
        joined = np.hstack([*(of.linearized(number) for of in columns), f])
        # A record is in few of many rows, and dense products of these would take minutes.
        terms.append(sparse.csr_array(joined) if joined.shape[1] > WIDE else joined)
        if len(terms) == 2:
            change = terms[1] - terms[0]
            if unit is not None:
                ones = np.ones(unit.size), (unit, np.arange(unit.size))
                change = sparse.csr_array(ones) @ change
            product: Any = change.T @ change / (2 * chosen)
            moments = moments + (product if isinstance(product, np.ndarray) else product.toarray())
            terms.clear()
    return np.stack(sums), moments


def _between(values: FloatArray, draws: int) -> FloatArray:
    """Return covariances (D, D) between draws of values (datasets, D), averaged within draws."""
    return np.cov(values.reshape(draws, -1, values.shape[1]).mean(axis=1), rowvar=False)


#: Datasets of each draw from which expected errors are computed.
REPLICATES = 4
#: With more columns than this, what records contribute is kept as a sparse matrix.
WIDE = 300
#: Records, over all pairs, from which moments within draws are estimated, and the least pairs.
MOMENT_RECORDS, LEAST_PAIRS = 200_000, 4


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """Results of comparing a release with its sample.

    rows: of all tables, frames (D) by statistic and outcome, with the by-columns (for shares the
    level before them), is_margin, n (missing for rows by an outcome), published and published_se,
    sample and sample_se, predicted, expected_error, and difference, predicted less sample in
    expected errors (NaN for known totals and withheld rows); p_value: the chance under the model
    that some row is as far off as the farthest; expected: of rows in the order of tables and their
    keys.
    """

    facts: ReleaseFacts
    rows: Mapping[Key, pd.DataFrame]
    p_value: float
    expected: ExpectedError

    @property
    def frame(self) -> pd.DataFrame:
        """All rows below each other, as in adequacy.csv."""
        parts = [
            table.assign(statistic=statistic, outcome=outcome)
            for (statistic, outcome), table in self.rows.items()
        ]
        frame = pd.concat(parts, ignore_index=True)
        first = [name for name in ("statistic", "outcome", TABLE, LEVEL) if name in frame]
        return frame[[*first, *(name for name in frame if name not in first)]]

    @property
    def compared(self) -> int:
        """The number of rows with a difference."""
        return int(self.frame["difference"].count())

    @property
    def beyond(self) -> int:
        """The number of rows farther from the sample than ``FAR`` expected errors."""
        return int((self.frame["difference"].abs() > FAR).sum())


def compare_with_sample(
    facts: ReleaseFacts,
    model: Model,
    survey: Survey,
    draws: PrivateDraws,
    published: Published,
    *,
    statistics: LocationStatistics | None = None,
    risk_weights: FloatArray | None = None,
) -> Findings:
    """Compare the tables of a release with its sample.

    survey: the confidential sample, as the mechanism had it; draws: those that datasets are made
    from; statistics: what noisy statistics published; risk_weights (n,): of the pseudo-posterior.
    Raises ``InputError`` if the tables are not of the survey and the specification.
    """
    spec, design, rng = without_flags(facts.spec), facts.design, np.random.default_rng(0)
    datasets = [
        SyntheticDataset(
            each.draw, each.replicate, each.variance_outcome, each.variance_weight,
            each.variance_outcome, each.variance_weight, missing=each.missing,
        )
        for each in synthesize(
            model, design, draws, replicates_per_draw=REPLICATES, rng=rng, scale_to=None
        )
    ]  # fmt: skip
    kept = [StoredTables() for _ in spec.each_table]
    collectors = [
        estimates_for(each, design, rule=rule)
        for each, rule in zip(spec.each_table, kept, strict=True)
    ]
    addends, noisy = _sums(facts, model, statistics)
    expected = expected_error(
        list(zip(collectors, kept, strict=True)), datasets, addends, noisy,
        unit=psu_codes(model, design), weights=risk_weights,
    )  # fmt: skip
    sample = {
        (each.table.name or "", key): own
        for key, whole in sample_tables(spec, answered(survey)).items()
        for each, own in by_table(spec, whole)
    }
    places = [
        (each.table.name or "", (statistic, None if j is None else design.outcome_names[j]))
        for each, of_table in zip(spec.each_table, collectors, strict=True)
        for statistic, j in of_table.keys
    ]
    ends = np.cumsum([len(sample[place]) for place in places])
    frames: dict[str, dict[Key, pd.DataFrame]] = {name: {} for name, _ in places}
    both = (np.split(each, ends[:-1]) for each in (expected.pull, expected.error))
    for (name, key), pull, error in zip(places, *both, strict=True):
        estimate, se = published.get((name, *key), (np.zeros(0), np.zeros(0)))
        if len(estimate) != len(error):
            raise InputError(
                f"expected the {len(error)} rows of the specification in {key[0]}s, and the "
                f"release has {len(estimate)}: the specification or the public columns are not "
                "those of the release any more."
            )
        frames[name][key] = rows_with_sample(
            sample[name, key], estimate, se, estimate + pull, error
        )
    every = [frames[name][key]["difference"] for name, key in places]
    p_value = expected.p_value(np.concatenate(every))
    return Findings(facts, stacked(spec, frames), p_value, expected)


def rows_with_sample(
    sample: pd.DataFrame,
    published: FloatArray,
    published_se: FloatArray,
    predicted: FloatArray,
    error: FloatArray,
) -> pd.DataFrame:
    """Put a published table and the sample's own side by side; all have the same rows (D).

    There is no difference where the sample's own error is rounding: the number is public.
    """
    rows = sample.drop(columns=["ci_lower", "ci_upper", "flag"])
    rows = rows.rename(columns={"estimate": "sample", "se": "sample_se"})
    rows = rows.assign(
        published=published, published_se=published_se, predicted=predicted, expected_error=error
    )
    varies = rows["sample_se"] > ROUNDING * rows["sample"].abs()
    apart = (rows["predicted"] - rows["sample"]) / rows["expected_error"].where(varies)
    return rows.assign(difference=apart.replace([np.inf, -np.inf], np.nan))


def _sums(
    facts: ReleaseFacts, model: Model, statistics: LocationStatistics | None
) -> tuple[Addends, tuple[FloatArray, FloatArray] | None]:
    """Return what records add to noisy statistics, with these, or to the scores of the model."""
    design = facts.design
    if statistics is None:
        return lambda dataset: record_scores(design, dataset), None
    addends = partial(record_sums, model, design, statistics)
    return addends, published_sums(model, design, statistics)


OWNER_ONLY = 0o600
#: Rows of the page; adequacy.csv has all.
SHOWN = 10
#: A test for all rows together below this says that the model is wrong.
LEVEL_OF_TEST = 0.05
WARNED = (
    "CONFIDENTIAL: what follows is computed from the confidential sample. Epsilon does not cover "
    "it, nor a decision to publish that depends on it."
)


@dataclass(frozen=True, repr=False)
class Adequacy:
    """The distance of a release from its sample: confidential, including its counts.

    page: the file that shows it; rows: number of rows compared; beyond: of rows more than 2.6
    expected errors from the sample; p_value: the chance, if the model is right, that some row is as
    far off as the farthest.
    """

    page: Path
    rows: int
    beyond: int
    p_value: float

    def sentences(self) -> list[str]:
        """Return the warning, and the verdict in one line."""
        return [WARNED, verdict(self.rows, self.beyond, self.p_value), f"See {self.page}."]


def verdict(rows: int, beyond: int, p_value: float) -> str:
    """Return the findings in words."""
    found = "more than noise and synthesis explain"
    if p_value >= LEVEL_OF_TEST:
        found = "no more than noise and synthesis explain"
    return (
        f"The release differs from the sample by {found} (p = {p_value:.2g} for all rows "
        f"together). {beyond:,} of {rows:,} rows differ by more than {FAR:.1f} expected errors; a "
        f"right model has about {rows / 100:.1f} such rows."
    )


def write_adequacy(found: Findings, folder: Path) -> Adequacy:
    """Write adequacy.html and adequacy.csv to the confidential folder, replacing earlier ones."""
    result = Adequacy(folder / ADEQUACY_PAGE, found.compared, found.beyond, found.p_value)
    rows = str(found.frame.to_csv(index=False, lineterminator="\n"))
    for name, text in ((ADEQUACY_ROWS, rows), (ADEQUACY_PAGE, render_adequacy(found))):
        (folder / name).unlink(missing_ok=True)
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    return result


def render_adequacy(found: Findings) -> str:
    """Return the page: warning, verdict, the farthest rows, one figure."""
    facts = found.facts
    figure = Picture(
        "differences", "All rows", "Predicted by the release, less the sample, in expected errors.",
        png_bytes(draw(differences_figure, {"": found})),
    )  # fmt: skip
    return page(
        f"CONFIDENTIAL: is it near the sample? {facts.title}", MARK, "adequacy.html.j2",
        title=facts.title, mark=MARK, warned=WARNED,
        verdict=verdict(found.compared, found.beyond, found.p_value), far=f"{FAR:.1f}",
        rows_name=ADEQUACY_ROWS, noisy=not facts.mechanism.down_weights,
        farthest=farthest_rows(found), picture=figure,
    )  # fmt: skip


def farthest_rows(found: Findings) -> PageTable:
    """Return the rows farthest from the sample, in expected errors."""
    frame = found.frame.assign(apart=found.frame["difference"].abs())
    frame = frame.dropna(subset="apart").sort_values("apart", ascending=False, kind="stable")
    rows = []
    for row in frame.head(SHOWN).to_dict("records"):
        factor = 100.0 if statistic_of(row["statistic"]).percent else 1.0
        values = (row[each] for each in ("published", "sample", "expected_error"))
        numbers = [_to_error(factor * each, factor * row["expected_error"]) for each in values]
        rows.append(Row(
            [_named(found, row)], cells(*numbers, show_ratio(row["difference"])),
            strong=bool(row["apart"] > FAR),
        ))  # fmt: skip
    heads = columns("Row", "Published", "Sample", "Expected error", "Ratio")
    return PageTable(
        f"The {len(rows)} farthest rows, by the ratio of difference and expected error; all are in "
        f"{ADEQUACY_ROWS}", heads, rows, "side",
    )


def _named(found: Findings, row: dict[Hashable, object]) -> str:
    """Return a row in words: its table, its level, and its by-columns."""
    labels, outcome = found.facts.labels, row["outcome"]
    parts = [heading_of(labels, str(row["statistic"]), None if outcome is None else str(outcome))]
    if isinstance(level := row.get(LEVEL), str) and outcome is not None:
        parts.append(labels.level(str(outcome), level))
    codes = ((name, row.get(name)) for name in found.facts.spec.by)
    parts += [labels.level(name, code) for name, code in codes if isinstance(code, str) and code]
    name = str(row.get(TABLE) or "")
    return " · ".join([*parts, *([f"table {name}"] if name else [])])


def _to_error(value: float, error: float) -> str:
    """Write a value to the second digit of its error, to six digits where that is zero."""
    if error <= 0.0:
        return f"{value:,.6g}".replace("-", "−")
    digits = 1 - math.floor(math.log10(error))
    return f"{round(value, digits) + 0.0:,.{max(digits, 0)}f}".replace("-", "−")


def differences_figure(releases: Mapping[str, Findings]) -> "Figure":
    """Draw all differences: a panel for each release, a line of dots for each statistic."""
    lines = max(len(found.rows) for found in releases.values())
    figure = new_figure(7.6, 0.9 + len(releases) * (0.5 + 0.45 * lines))
    panels = figure.subplots(len(releases), 1, squeeze=False, sharex=True)[:, 0]
    for panel, (title, found) in zip(panels, releases.items(), strict=True):
        panel.set_title(title)
        _differences(panel, found)
    reach = max(1.2 * FAR, *(abs(end) for panel in panels for end in panel.get_xlim()))
    panels[-1].set_xlim(-reach, reach)
    panels[-1].set_xlabel(f"expected errors; shaded: within {FAR:.1f}, as 99 of 100 rows are")
    return figure


def _differences(panel: Any, found: Findings) -> None:
    panel.axvspan(-FAR, FAR, color="#eef3f7", zorder=0)
    for place, table in enumerate(found.rows.values()):
        z = table["difference"].dropna().to_numpy()
        far = np.abs(z) > FAR
        heights = place + np.random.default_rng(0).uniform(-0.15, 0.15, z.size)  # for the eye
        panel.plot(z[~far], heights[~far], "o", color=INK, markersize=4, alpha=0.5)
        panel.plot(z[far], heights[far], "D", color=WARNING, markersize=5)
    panel.axvline(0.0, color=FAINT, linewidth=1)
    names = [heading_of(found.facts.labels, *key) for key in found.rows]
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
