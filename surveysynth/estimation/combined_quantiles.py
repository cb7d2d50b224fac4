"""Quantiles of several datasets (methods 5).

The distribution functions of the datasets are combined, and the interval of the combined one is
inverted. q is the inverse at p of the mean distribution function F of all datasets. Each dataset's
F(q) is a mean of an indicator, at one q for all, so that both combining rules hold for it as for
any mean. Its interval F(q) ± t SE goes through the inverse of the mean distribution function.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined, CombiningRule
from surveysynth.estimation.quantiles import (
    RowDistributions,
    Weighted,
    distribution,
    woodruff,
    woodruff_se,
)
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistic import Statistic
from surveysynth.estimation.taylor import LinearisedTable


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
        p = self._kind.share_below
        assert p is not None  # such a statistic alone is collected here
        rows = RowDistributions([dataset for _, _, dataset, _ in self._kept])
        n_rows = self._kept[0][2].domains.n_rows
        at = rows.inverse(np.full((1, n_rows), p))[0]
        share = self._share(at)
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

    def _share(self, at: FloatArray) -> Combined:
        """Combine the distribution functions at values (D,)."""
        draws = max(draw for draw, *_ in self._kept)
        replicates = max(replicate for _, replicate, *_ in self._kept)
        collected = self._rule.collect(draws, replicates, self._design)
        for draw, replicate, dataset, pair in self._kept:
            table = self._table(dataset, at)
            spread = table if pair is dataset else self._table(pair, at)
            collected.add(draw, replicate, table.estimate, spread)
        return collected.combined()

    def _table(self, data: Weighted, at: FloatArray) -> LinearisedTable:
        with np.errstate(divide="ignore", invalid="ignore"):
            made = distribution(data.domains, data.weight, data.values, at)
        return LinearisedTable(
            self._kind, data.domains, data.weight, made,
            self._calibrated and data.calibration is None, data.calibration,
            lambda weight: distribution(data.domains, weight, data.values, at).estimate,
        )  # fmt: skip
