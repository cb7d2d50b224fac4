"""Quantiles of several datasets (methods 5).

q is the inverse at p of the distribution function F of all datasets, stacked. Each dataset's F(q)
is a mean of an indicator, at one q for all, so that both combining rules hold for it as for any
mean. Its interval F(q) ± t SE goes through the inverse of F. For a contrast of quantiles F(q) is
divided by minus its density, which makes it linear in them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined, CombiningRule
from surveysynth.estimation.contrasts import contrasted
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.linearised import Linearised
from surveysynth.estimation.quantiles import (
    RowDistributions,
    Weighted,
    distribution,
    slopes,
    woodruff,
    woodruff_se,
)
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistic import Statistic
from surveysynth.estimation.taylor import LinearisedTable

_Made: TypeAlias = tuple[Domains, Linearised]


@dataclass(frozen=True)
class Inverted(Combined):
    """Combined quantiles.

    ``of_share``: the distribution function at them, on whose scale the interval is made; ``rows``:
    the distribution functions that are inverted.
    """

    of_share: Combined
    rows: RowDistributions

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends (D,) of Woodruff's interval."""
        share = self.of_share
        return woodruff(self.rows, share.estimate, share.standard_error, self.df, level)


class Quantiles:
    """Collect the datasets of one table of quantiles as they stream by."""

    def __init__(
        self,
        kind: Statistic,
        rule: CombiningRule,
        sample_design: SampleDesign,
        *,
        calibrated: bool,
    ) -> None:
        self._kind, self._rule, self._design = kind, rule, sample_design
        self._calibrated = calibrated
        self._kept: list[tuple[int, int, Weighted, Weighted]] = []

    def add(self, draw: int, replicate: int, dataset: Weighted, pair: Weighted) -> None:
        """Add one dataset, with the table that gives its variance."""
        self._kept.append((draw, replicate, dataset, pair))

    def combined(self) -> Combined:
        """Return the quantiles of the mean distribution function."""
        if not self._kept:
            raise InputError("There is nothing to combine: no dataset was added.")
        p = self._kind.share
        assert p is not None  # such a statistic alone is collected here
        data = [dataset for _, _, dataset, _ in self._kept]
        rows = RowDistributions(data)
        at = rows.inverse(np.full((1, data[0].domains.n_rows), p))[0]
        if self._kind.contrast is not None:
            return self._contrast(at, rows, data, p)
        share = self._combined(lambda each: (each.domains, _function(each, at)))
        se = woodruff_se(rows, at, share.estimate, share.standard_error, share.df)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(share.standard_error > 0, se / share.standard_error, 0.0) ** 2
        known = np.isfinite(share.estimate)
        return Inverted(
            estimate=np.where(known, at, np.nan),
            standard_error=np.where(np.isfinite(share.standard_error), se, np.nan),
            df=share.df,
            df_design=share.df_design,
            between=share.between * scale,
            within=share.within * scale,
            of_share=share,
            rows=rows,
        )

    def _contrast(
        self, at: FloatArray, rows: RowDistributions, data: Sequence[Weighted], p: float
    ) -> Combined:
        """Combine the contrasts of quantiles (D,), linear in F at them."""
        contrast = self._kind.contrast
        assert contrast is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = slopes(rows, data, p)
            parts = np.array([_function(each, at).parts for each in data]).sum(axis=0)
            reached = parts[0] / parts[1]

        def table(each: Weighted) -> _Made:
            made = _function(each, at)
            assert made.parts is not None
            below, size = made.parts
            with np.errstate(divide="ignore", invalid="ignore"):
                linear = Linearised(
                    at + slope * (made.estimate - reached),
                    lambda codes: made.inside(codes) * slope[codes],
                    parts=(at * size + slope * (below - reached * size), size),
                )
                return contrasted(contrast, each.domains, each.weight, linear)

        return self._combined(table)

    def _combined(self, made: Callable[[Weighted], _Made]) -> Combined:
        """Combine what every dataset gives."""
        draws = max(draw for draw, *_ in self._kept)
        replicates = max(replicate for _, replicate, *_ in self._kept)
        collected = self._rule.collect(draws, replicates, self._design)
        for draw, replicate, dataset, pair in self._kept:
            table = self._table(dataset, made)
            spread = table if pair is dataset else self._table(pair, made)
            collected.add(draw, replicate, table, spread)
        return collected.combined()

    def _table(self, data: Weighted, made: Callable[[Weighted], _Made]) -> LinearisedTable:
        domains, linearised = made(data)
        calibrated = self._calibrated and data.calibration is None

        def again(weight: FloatArray) -> FloatArray:
            return made(replace(data, weight=weight))[1].estimate

        return LinearisedTable(
            self._kind, domains, data.weight, linearised, calibrated, data.calibration, again
        )


def _function(data: Weighted, at: FloatArray) -> Linearised:
    """Return the distribution functions of one dataset at values (D,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return distribution(data.domains, data.weight, data.values, at)
