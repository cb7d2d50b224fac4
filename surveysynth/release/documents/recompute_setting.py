"""What the programs of a release's README are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.writers.csv import MicrodataFormat

Language = Literal["python", "r"]
LonelyRule = Literal["none", "skip", "adjust", "average"]
"""How the program treats strata with one unit; none where there is no such stratum."""


@dataclass(frozen=True)
class Subset:
    """Who is in the subpopulation of a table.

    inside: the expression that tells, by language; of_pair: that of the pair for variances, None
    where it is the same; codes: its columns that are read as text.
    """

    inside: dict[Language, str]
    of_pair: dict[Language, str] | None
    codes: tuple[str, ...]

    def functions(self, language: Language) -> list[tuple[str, str]]:
        """Name and expression of every function of the program that is needed for it."""
        found = [("subset", self.inside[language])]
        if self.of_pair is not None:
            found.append(("variance_subset", self.of_pair[language]))
        return found


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
    ``variance_other_cell`` where cell has one; subset: the subpopulation of the table;
    whole: columns whose codes are numbers in the files; places: of columns with numbers from 1 on
    in the place of codes, the codes.
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
    file_format: MicrodataFormat
    design_effect: float | None = None
    public: tuple[str, ...] | None = None
    level: str | float | None = None
    compared: str = "=="
    variance_cell: dict[str, Any] | None = None
    df_design: float = float("inf")
    denominator: tuple[str, str] | None = None
    other_cell: dict[str, Any] | None = None
    variance_other_cell: dict[str, Any] | None = None
    subset: Subset | None = None
    whole: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def own_pair(self) -> bool:
        """Whether the pair for variances has a subpopulation of its own."""
        return self.subset is not None and self.subset.of_pair is not None

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
        subset = () if self.subset is None else self.subset.codes
        others = (self.variance_cell, self.other_cell, self.variance_other_cell)
        cells = [*self.cell, *(name for each in others for name in each or ())]
        return list(dict.fromkeys([*cells, *design, *public, *of_levels, *subset]))
