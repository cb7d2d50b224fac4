"""What the programs of a release's README are made from."""

from dataclasses import dataclass
from typing import Any, Literal

from surveysynth.estimation.statistics import statistic_of

LonelyRule = Literal["none", "skip", "adjust", "average"]
"""How the program treats strata with one unit; none where there is no such stratum."""


@dataclass(frozen=True)
class ExampleSetting:
    """What the programs in any language are made from; names and codes as the files have them.

    cell: codes of the by-columns that the row is restricted to; codes: columns to read as text;
    variance_pair: outcome and weight that variances are taken from, None where they are the same;
    rule: the linearisation; psu: where variances are by PSU; public: columns of the public rows
    where datasets combine by the law of total variance, None where by partial synthesis; level:
    whose indicator takes the outcome's place, text or, of an outcome without names of levels, a
    number; compared: how values are compared with it; variance_cell: cell, where an outcome in it
    has a pair for variances; df_design: degrees of freedom of the design; denominator: the second
    outcome of a ratio, and its column in the pair; other_cell: of a contrast the second row, with
    ``variance_other_cell`` where cell has one.
    """

    statistic: str
    rule: str
    cell: dict[str, Any]
    outcome: str
    weight: str
    variance_pair: tuple[str, str] | None
    strata: str | None
    psu: str | None
    fraction: str | None
    population: float | None
    lonely: LonelyRule
    parquet: bool
    design_effect: float | None = None
    public: tuple[str, ...] | None = None
    level: str | float | None = None
    compared: str = "=="
    variance_cell: dict[str, Any] | None = None
    df_design: float = float("inf")
    denominator: tuple[str, str] | None = None
    other_cell: dict[str, Any] | None = None
    variance_other_cell: dict[str, Any] | None = None

    @property
    def of_share(self) -> bool:
        """Whether the program is of a distribution function, which it inverts at last."""
        return statistic_of(self.statistic).share_below is not None

    @property
    def codes(self) -> list[str]:
        """Columns of codes that the program reads, each once."""
        design = [name for name in (self.strata, self.psu) if name is not None]
        public = [name for name in self.public or () if name != self.weight]
        of_levels = []
        if isinstance(self.level, str):
            of_levels = [self.outcome, *(self.variance_pair or ())[:1]]
        others = (self.variance_cell, self.other_cell, self.variance_other_cell)
        cells = [*self.cell, *(name for each in others for name in each or ())]
        return list(dict.fromkeys([*cells, *design, *public, *of_levels]))
