"""The fit of a survey's amounts under public powers. Confidential.

A power is declared, from an earlier year or another source. Choosing it by these numbers is a look
at the data that epsilon does not cover.

The fit measures the model's conditional normality in the population: a regression of transformed
amounts on X, weighted by the survey weights, with one residual spread or one for each cell of the
tables. Records at a spike are left out, and bounds are ignored. With a split, each side has a
regression of its own, of the distance from the split.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import sums_by_row
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.evaluation.compare.tables import distances, sample_weight
from surveysynth.evaluation.style import Cell, PageTable, Row, columns
from surveysynth.release.tables.labels import Labels
from surveysynth.release.tables.rounding import show_ratio, to_digits
from surveysynth.release.tables.table_builder import public_domains
from surveysynth.survey.outcome import Outcome, OutcomeKind
from surveysynth.survey.transforms import Transform

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import Survey

POWERS = tuple(number / 10 for number in range(11))

#: Records that a cell needs for a residual spread of its own; smaller cells take the common one.
LEAST_IN_CELL = 50

COLUMNS = (
    "outcome", "side", "transform", "declared", "log_lik", "skewness", "kurtosis", "median",
    "largest", "median_by_cell", "largest_by_cell",
)  # fmt: skip

POWER_WARNING = (
    "Choosing a power by these numbers is a look at the data, which epsilon does not cover. Take "
    "it from an earlier year or from another survey."
)
_RATIOS = ("skewness", "kurtosis", "median", "largest", "median_by_cell", "largest_by_cell")
_LOG_LIK = to_digits(3)
_HEADS = (
    "Transform", "Log-likelihood", "Skewness", "Kurtosis", "Median, one spread", "Largest",
    "Median, by cell", "Largest",
)  # fmt: skip

#: Nodes of the mean of an amount under a normal on the transformed scale.
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
_BLOCK = 50_000


@dataclass(frozen=True, eq=False, repr=False)
class Amounts(Unpickled):
    """The n records of a survey for one outcome, those at a spike with weight 0.

    values, weight: (n,); cell, x_cells: (n,) and (G, K), X by its distinct rows; domains: the rows
    of the tables, by public columns.
    """

    values: FloatArray
    weight: FloatArray
    cell: IntArray
    x_cells: FloatArray
    domains: Domains

    @property
    def interior(self) -> IntArray:
        """The interior cell of the tables that each record is in, (n,)."""
        return np.asarray(self.domains.codes[-1], dtype=np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Unpickled):
    """A weighted regression of transformed amounts on X.

    centre: (G,) by distinct row of X; spread: of all; spreads: (D,) by interior cell of the tables;
    log_lik: mean over records, in original units; skewness, kurtosis: of residuals, both 0 for a
    normal distribution.
    """

    centre: FloatArray
    spread: float
    spreads: FloatArray
    log_lik: float
    skewness: float
    kurtosis: float


def power_fits(spec: "Spec", survey: "Survey") -> pd.DataFrame:
    """Return one row a power and amount, and one for the declared transform if it differs.

    With a split there are rows for each side. log_lik: mean over records, with the Jacobian;
    skewness, kurtosis (excess) of residuals; median, largest: over the rows of the tables, |mean
    that the normal distribution implies - sample's mean| in standard errors of the sample, with one
    residual spread, and ``_by_cell`` with one for each cell of the tables.
    """
    design = survey.design
    domains = public_domains(spec.each_table[0], design)
    sample_design = SampleDesign.from_public(design).by_psu
    weight = sample_weight(survey)
    lines = []
    for column, outcome in enumerate(design.outcomes):
        for side in outcome.sides:
            original = survey.confidential.outcome[:, column]
            present = np.where(outcome.category(original) == side, weight, 0.0)
            if not present.any():
                continue
            values = outcome.distance(original, side)
            amounts = Amounts(values, present, design.matrix.cell, design.matrix.x_cells, domains)
            own = estimate_domains(
                domains, sample_design, weight=present, outcome=values, statistic="mean",
                linearisation="plain",
            )  # fmt: skip
            for transform in candidates(outcome.transform):
                fit = fitted(amounts, transform)
                apart = [
                    np.abs(distances(implied, own.estimate, np.sqrt(own.variance)))
                    for implied in implied_means(amounts, transform, fit)
                ]
                numbers = [f(each) for each in apart for f in (_median, _largest)]
                lines.append(
                    (outcome.name, outcome.side_name(side),
                     _with_transform(outcome, transform).formula(side),
                     transform == outcome.transform, fit.log_lik, fit.skewness, fit.kurtosis,
                     *numbers)
                )  # fmt: skip
    return pd.DataFrame(lines, columns=list(COLUMNS))


def power_tables(powers: pd.DataFrame, labels: Labels) -> list[PageTable]:
    """Return a table for each amount, the declared transform in bold."""
    made = []
    for (outcome, side), frame in powers.groupby(["outcome", "side"], sort=False):
        rows = [
            Row(
                [f"{row['transform']}{' (declared)' if row['declared'] else ''}"],
                [Cell(_LOG_LIK.show(row["log_lik"])), *(Cell(show_ratio(row[c])) for c in _RATIOS)],
                strong=row["declared"],
            )
            for row in frame.to_dict("records")
        ]
        title = labels.titled_with_unit(str(outcome)) + (f", {side}" if side else "")
        made.append(PageTable(title, columns(*_HEADS), rows, "side"))
    return made


def _with_transform(outcome: Outcome, transform: Transform) -> Outcome:
    """Return the outcome with a declared transform; a count as an amount."""
    kind: OutcomeKind = "continuous" if outcome.kind == "count" else outcome.kind
    return replace(outcome, kind=kind, transform=transform)


def candidates(declared: Transform) -> Iterator[Transform]:
    """Yield the declared transform, unless it is one of the powers, and every power.

    Powers have the scale of the declared transform. Of a learned one, whose curve is not known
    here, the scale of its grid is shown.
    """
    declared = declared.axis
    powers = [Transform("yeo_johnson", scale=declared.scale, power=power) for power in POWERS]
    if declared not in powers:
        yield declared
    yield from powers


def fitted(amounts: Amounts, transform: Transform) -> Fit:
    """Fit by least squares weighted by the survey weights."""
    w, cell, x = amounts.weight, amounts.cell, amounts.x_cells
    # Values at a spike have no weight; their transform may not be a number.
    z = np.zeros(w.size)
    used = w > 0
    z[used] = transform.forward(amounts.values[used])
    of_cell, total = np.bincount(cell, w, minlength=len(x)), w.sum()
    gram = x.T @ (of_cell[:, None] * x)
    product = x.T @ np.bincount(cell, w * z, minlength=len(x))
    centre = x @ np.linalg.lstsq(gram, product, rcond=None)[0]
    residual = np.where(used, z - centre[cell], 0.0)
    second, third, fourth = (w @ residual**power / total for power in (2, 3, 4))
    spread = float(np.sqrt(second))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = w[used] @ transform.log_slope(amounts.values[used]) / total
        return Fit(
            centre=centre,
            spread=spread,
            spreads=_spreads(amounts, residual, spread),
            log_lik=float(slope - 0.5 * np.log(2.0 * np.pi * second) - 0.5),
            skewness=float(third / second**1.5),
            kurtosis=float(fourth / second**2 - 3.0),
        )


def _spreads(amounts: Amounts, residual: FloatArray, common: float) -> FloatArray:
    """Return the residual spread of each interior cell (D,), the common one for small cells."""
    rows, w = amounts.domains.n_rows, amounts.weight
    weight, squares, n = (
        np.bincount(amounts.interior, each, minlength=rows)
        for each in (w, w * residual**2, (w > 0).astype(np.float64))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(n >= LEAST_IN_CELL, np.sqrt(squares / weight), common)


def implied_means(
    amounts: Amounts, transform: Transform, fit: Fit
) -> tuple[FloatArray, FloatArray]:
    """Return the mean of each row (D,) if amounts were normal on the transformed scale.

    First with one spread, then with the spreads of cells.
    """
    cells, record = np.unique(
        amounts.cell * amounts.domains.n_rows + amounts.interior, return_inverse=True
    )
    of_x, interior = np.divmod(cells, amounts.domains.n_rows)
    centre = fit.centre[of_x]
    total = sums_by_row(amounts.domains, amounts.weight)
    results = []
    for spread in (np.full(cells.size, fit.spread), fit.spreads[interior]):
        mean = normal_means(transform, centre, spread)[record]
        with np.errstate(divide="ignore", invalid="ignore"):
            results.append(sums_by_row(amounts.domains, amounts.weight * mean) / total)
    return results[0], results[1]


def normal_means(transform: Transform, centre: FloatArray, spread: FloatArray) -> FloatArray:
    """Return E[y] (k,) where the transform of y is normal with centres and spreads (k,)."""
    chance = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
    result = np.empty(centre.size)
    with np.errstate(over="ignore"):
        for begin in range(0, centre.size, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            z = centre[part, None] + spread[part, None] * _NODES
            result[part] = transform.inverse(z) @ chance
    return result


def _median(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")


def _largest(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else float("nan")
