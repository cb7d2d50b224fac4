"""Expected standard errors of a release by noisy statistics, from public inputs alone (strict 5).

They are given for every row of its tables, relative to those of a sample without privacy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.estimates import Key
from surveysynth.estimation.statistics import MEAN, PROPORTION, TABLE, TOTAL, statistic_of
from surveysynth.estimation.subpopulation import shown_rows, shown_table
from surveysynth.mechanisms.learned.histogram import what_is_left
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.expected_se import (
    clipping_bias,
    expected_errors,
    outcome_moments,
    sample_error,
    share_outside,
)
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    centring_of,
    required_design,
    table_of,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.release import figure_style as style
from surveysynth.release.tables.table_builder import keys_of, public_domains

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign


EPSILONS = (0.5, 1.0, 2.0, 3.6, 5.0, 10.8)
#: Declared spreads over true ones.
FACTORS = (0.5, 1.0, 1.5, 2.0)
#: Numbers of a block of rows by cells of X: 160 MB.
_MOST_NUMBERS = 2 * 10**7


@dataclass(frozen=True)
class Misdeclared:
    """The effect of declared spreads that are ``factor`` times the true ones.

    outside: share of normal records at the centre that is clipped; typical: median over rows of the
    SE over the sample's, by table; bias: of means, in SEs of the sample, by outcome: of the whole,
    and of a row of median size, whose records lie one spread above the centre unless groups have
    centres of their own.
    """

    factor: float
    outside: float
    typical: dict[Key, float]
    bias: dict[int, tuple[float, float]]


@dataclass(frozen=True)
class UnitLimit:
    """The effect of a public limit of ``records`` a unit.

    units_beyond and records_beyond count units and records beyond the limit; typical: median over
    rows of the SE over the sample's, by table.
    """

    records: int
    units_beyond: int
    records_beyond: int
    typical: dict[Key, float]


class Expectation:
    """Expected errors of a release, in rows by public columns.

    Raises ``InputError`` for a model without such statistics, with what works, and where too few
    records are left for the residual variance.
    """

    def __init__(
        self,
        spec: "Spec",
        design: "PublicDesign",
        model: Model,
        another: "Expectation | None" = None,
    ) -> None:
        """Prepare one table; it shares the noise of ``another`` table of the same release."""
        from surveysynth.spec.build import noisy_settings_of

        self.spec, self.design, self.model = spec.for_records(design.n), design, model
        self.settings: NoisySettings = noisy_settings_of(spec)
        if another is None:
            self.noise, self.columns = required_design(model, design, self.settings)
        else:
            self.noise, self.columns = another.noise, another.columns
        self.domains: Domains = public_domains(spec, design)
        self.shown = np.flatnonzero(shown_rows(self.domains))
        self.unit_size = self.settings.unit_size(design)
        general = model.of(design)
        self.by_block = isinstance(general, GeneralLocation)
        shape = table_of(general, design)
        #: Groups of cells have centres of their own.
        self.centred = self.by_block and centring_of(shape, design, self.settings) is not None
        self.cells = _CellsOfRows.of(design, self.domains)

    @property
    def not_available(self) -> str | None:
        """Why no standard errors can be computed, or None."""
        if self.settings.modules:
            return (
                "Expected standard errors are not available for modules, each of which has a part "
                "of the budget and of the columns. --simulate finds them."
            )
        if self.design.psu is None:
            return None
        column = self.design.psu_name
        if self.design.design_effect is not None:
            return (
                f"Expected standard errors are not available for a declared design effect "
                f"({column}): the formulas assume samples without clusters. --simulate finds them."
            )
        return (
            f"Expected standard errors are not available for a model with effects of {column}: "
            "the formulas ignore these effects and would promise too little error. A share of "
            "the budget goes to the sums by unit. --simulate finds them."
        )

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The grid, with the specification's own, in ascending order."""
        own = self.settings.budget
        others = [Budget.of_epsilon(e, own.delta) for e in EPSILONS if not _near(e, own.epsilon)]
        return tuple(sorted([own, *others], key=lambda each: each.epsilon))

    @property
    def tables(self) -> tuple[Key, ...]:
        """Tables with expected standard errors."""
        return tuple(key for key in keys_of(self.spec) if _kind_of(key) is not None)

    def ratios(
        self, key: Key, budgets: tuple[Budget, ...], *, factor: float = 1.0, records: int = 0
    ) -> FloatArray:
        """SEs over the sample's, (budgets, D) for the D rows ``shown``; NaN where a row has none.

        factor: of the declared spreads over the true ones; records: of the largest unit, 0: as it
        is.
        """
        kind = _kind_of(key)
        assert kind is not None  # the caller takes those of ``tables``
        found = [
            self._of_ball(radii, list(some), kind, key[1] or 0, factor, records)
            for radii, some in groupby(budgets, self._radii)
        ]
        return np.concatenate(found)[:, self.shown]

    def _radii(self, budget: Budget) -> tuple[float, float | None]:
        """Return the radius of the ball, and of that about groups if these have centres.

        That of learned amounts goes with the budget."""
        settings = replace(self.settings, budget=budget)
        about = settings.radius_about_groups(self.design) if self.centred else None
        return settings.clipping(self.design).radius, about

    def _of_ball(
        self,
        radii: tuple[float, float | None],
        budgets: Sequence[Budget],
        kind: str,
        column: int,
        factor: float,
        records: int,
    ) -> FloatArray:
        """Return those of all rows for budgets with the same ball, (budgets, rows)."""
        clipping = self.settings.log_scales(self.design)
        wider = NoiseDesign(
            Clipping(clipping.centre, clipping.spread, radii[0] * factor),
            self.noise.cells,
            self.noise.basis,
        )
        found = [
            expected_errors(
                wider, self.cells.counts, self.cells.stratum, rows,
                [what_is_left(each.rho, self.design.modelled) for each in budgets],
                inverse=self.design.transforms[column].inverse,
                outcome=column,
                m=self.settings.m,
                replicates=self.spec.privacy.replicates_per_draw,
                records=records or self.unit_size,
                scaled=self.spec.linearisation == "ratio",
                weight=self.cells.weight,
                by_block=self.by_block,
                second=None if radii[1] is None else radii[1] * factor,
            )
            for rows in self.cells.blocks()
        ]  # fmt: skip
        # The first row of each block of rows is the whole.
        return np.concatenate([getattr(each, kind)[:, 1:] for each in found], axis=1)

    def typical(self, *, factor: float = 1.0, records: int = 0) -> dict[Key, float]:
        """Return the median over rows with records, by table, at the specification's budget."""
        own = (self.settings.budget,)
        medians = {}
        for key in self.tables:
            values = self.ratios(key, own, factor=factor, records=records)[0]
            finite = values[np.isfinite(values)]
            medians[key] = float(np.median(finite)) if finite.size else float("nan")
        return medians

    def misdeclared(self, factor: float) -> Misdeclared:
        """Return the effect of spreads declared ``factor`` times too large."""
        clipping = self.settings.log_scales(self.design)
        own = self._radii(self.settings.budget)
        radius, q = factor * (own[1] or own[0]), clipping.q
        off = 0.0 if self.centred else 1.0
        # As many records of equal weights say of the whole what these do.
        share = effective_share(self.design.public_weight)
        n = self.domains.n[self.shown]
        typical = share * float(np.median(n[n > 0])) if n.any() else 1.0
        whole = share * self.design.n
        bias = {}
        for column in sorted({key[1] for key in self.tables if key[1] is not None}):
            outcome = outcome_moments(
                clipping, self.design.transforms[column].inverse, column,
                modelled=self.design.public_weight is None,
            )  # fmt: skip
            bias[column] = (
                clipping_bias(outcome, radius, q) / sample_error(outcome, whole),
                clipping_bias(outcome, radius, q, off) / sample_error(outcome, typical),
            )
        return Misdeclared(factor, share_outside(radius, q), self.typical(factor=factor), bias)

    def unit_limits(self) -> tuple[UnitLimit, ...]:
        """Return limits from the largest unit down to 1, halving; none if records are protected."""
        if self.unit_size == 1:
            return ()
        sizes = self.settings.unit_sizes(self.design)
        limits = [self.unit_size]
        while limits[-1] > 1:
            limits.append(limits[-1] // 2)
        available = self.not_available is None
        return tuple(
            UnitLimit(
                limit,
                int((sizes > limit).sum()),
                int(np.maximum(sizes - limit, 0).sum()),
                self.typical(records=limit) if available else {},
            )
            for limit in limits
        )

    def frame(self) -> "pd.DataFrame":
        """Return every row of every table at every budget: public, and may be published."""
        import pandas as pd

        parts = []
        for key in self.tables:
            values = self.ratios(key, self.budgets)
            outcome = "" if key[1] is None else self.design.outcome_names[key[1]]
            for budget, ratio in zip(self.budgets, values, strict=True):
                table = shown_table(self.domains).assign(
                    n=self.domains.n[self.shown], epsilon=budget.epsilon, delta=budget.delta,
                    rho=budget.rho, se_over_sample=ratio,
                )  # fmt: skip
                table.insert(0, "outcome", outcome)
                table.insert(0, "statistic", key[0])
                if self.spec.table.name is not None:
                    table.insert(0, TABLE, self.spec.table.name)
                parts.append(table)
        return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True)
class _CellsOfRows:
    """The cells of X that make up the rows of a table.

    counts, stratum (G,) of the cells; codes (2^k, G): the row of a cell in each margin set; rows:
    number of rows of the table; weight (G,) of a record where weights are public, else None.
    """

    counts: IntArray
    stratum: IntArray
    codes: IntArray
    rows: int
    weight: FloatArray | None

    @classmethod
    def of(cls, design: "PublicDesign", domains: Domains) -> "_CellsOfRows":
        """Find the cells of a design and the rows of the table they are in.

        X spans strata and by variables and determines public weights. So a cell lies in one stratum
        and in one row of each margin set, with one weight: those of its first record.
        """
        cell = design.matrix.cell
        _, first, counts = np.unique(cell, return_index=True, return_counts=True)
        strata = np.zeros(design.n, dtype=np.int64) if design.strata is None else design.strata
        weight = None if design.public_weight is None else design.public_weight[first]
        return cls(
            counts.astype(np.int64), strata[first], domains.codes[:, first], domains.n_rows, weight
        )

    def blocks(self) -> Iterator[FloatArray]:
        """Yield zeros and ones (1 + rows of the block, G); the first row is always the whole."""
        size = max(1, _MOST_NUMBERS // self.counts.size)
        for start in range(0, self.rows, size):
            stop = min(start + size, self.rows)
            block = np.zeros((1 + stop - start, self.counts.size))
            block[0] = 1.0
            for codes in self.codes:
                inside = np.flatnonzero((codes >= start) & (codes < stop))
                block[1 + codes[inside] - start, inside] = 1.0
            yield block


def effective_share(weight: FloatArray | None) -> float:
    """Return Kish's effective number of records over their number, for public weights (n,)."""
    if weight is None:
        return 1.0
    return float(weight.sum() ** 2 / (weight.size * (weight**2).sum()))


def _kind_of(key: Key) -> str | None:
    """Return which expected error a table has; None for a statistic without one."""
    statistic = statistic_of(key[0])
    if statistic.is_count:
        return "count"
    return {TOTAL.name: "total", MEAN.name: "mean", PROPORTION.name: "mean"}.get(key[0])


def _near(first: float, second: float) -> bool:
    return abs(first - second) <= 1e-3 * second


_CELLS, _MARGINS = "#0072B2", style.INK
_TITLE = "Expected before any confidential value is read: public"


def expected_png(expected: Sequence[Expectation]) -> bytes:
    """Draw the figure of every table as PNG; equal inputs give equal bytes."""
    return style.png_bytes(style.draw(expected_figure, expected))


def expected_figure(every: Sequence[Expectation]) -> "Figure":
    """Draw a panel for each statistic of each table.

    It shows the SE over the sample's against epsilon, on log scales.
    """
    keys = [(expected, key) for expected in every for key in expected.tables]
    budgets = every[0].budgets
    height = 0.9 + 2.7 * len(keys)
    figure = style.new_figure(7.2, height, _TITLE, style.INK)
    panels = figure.subplots(len(keys), 1, squeeze=False, sharex=True)[:, 0]
    epsilon = np.array([budget.epsilon for budget in budgets])
    for panel, (expected, (statistic, column)) in zip(panels, keys, strict=True):
        margin = expected.domains.table["is_margin"].to_numpy(dtype=bool)[expected.shown]
        ratios = expected.ratios((statistic, column), budgets)
        _panel(panel, epsilon, ratios, margin, expected.settings.epsilon)
        name = "" if column is None else f" of {expected.design.outcome_names[column]}"
        table = f"{expected.spec.table.name}: " if expected.spec.table.name else ""
        panel.set_title(f"{table}{statistic_of(statistic).title}{name}", parse_math=False)
    panels[0].legend(fontsize=8.5, loc="upper right", framealpha=1.0, edgecolor="none")
    panels[-1].set_xlabel(f"epsilon, at delta = {every[0].settings.budget.delta:.3g}")
    return figure


def _panel(
    panel: Any, epsilon: FloatArray, ratios: FloatArray, margin: BoolArray, own: float
) -> None:
    known = np.isfinite(ratios).all(axis=0)
    x = np.log10(epsilon)
    for chosen, colour, name in ((~margin, _CELLS, "cells"), (margin, _MARGINS, "margins")):
        values = np.log10(ratios[:, known & chosen])
        if not values.size:
            continue
        low, high = values.min(axis=1), values.max(axis=1)
        panel.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        panel.plot(
            x, np.median(values, axis=1), "o-", color=colour, markersize=3.5, linewidth=1.6,
            label=f"{name}: median, smallest to largest",
        )  # fmt: skip
    panel.axhline(0.0, color=style.FAINT, linewidth=1)
    panel.axvline(np.log10(own), color=style.FAINT, linewidth=1, linestyle="--")
    panel.annotate(
        "as specified", (np.log10(own), 0.02), xycoords=("data", "axes fraction"),
        xytext=(4, 0), textcoords="offset points", fontsize=8, color=style.FAINT,
    )  # fmt: skip
    panel.set_xticks(x, [f"{each:.3g}" for each in epsilon])
    panel.grid(visible=True, axis="y")
    style.log_ticks(panel, "y")
    panel.set_ylabel("SE over the sample's", fontsize=9)
