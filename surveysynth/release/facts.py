"""Public facts about a release, gathered once for all its files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from surveysynth._support.resources import render
from surveysynth.config.spec import Spec
from surveysynth.config.tables_section import table_files
from surveysynth.estimation.calibration import Calibration
from surveysynth.estimation.sample_design import Clusters
from surveysynth.estimation.statistics import Statistic, statistic_of
from surveysynth.inference.debias import DebiasRecord
from surveysynth.mechanisms.base import Mechanism, Settings, Statement
from surveysynth.mechanisms.pseudo_posterior.mechanism import UNPROTECTED
from surveysynth.release.microdata import Digits, format_of
from surveysynth.release.reader import ReleaseCounts
from surveysynth.release.tables.layout import (
    AnyRounding,
    Labels,
    Rounding,
    Warranted,
    to_digits,
    to_percent,
)
from surveysynth.release.writers.csv import MicrodataFormat
from surveysynth.survey.survey import PublicDesign

#: So many factors are listed; of more, the smallest and the largest.
_LISTED = 8


def inference_words(record: DebiasRecord) -> str:
    """Return a paragraph of the privacy statement, from ``templates/inference.j2``."""
    shifts: dict[str, list[float]] = {"scale": [], "location": []}
    for kind, shift in zip(record.kinds, record.shift, strict=record.debiased):
        shifts[kind].append(shift)
    factors = [f"{np.exp(shift):.3f}" for shift in shifts["scale"]]
    if len(factors) > _LISTED:
        smallest, largest = (f"{np.exp(end(shifts['scale'])):.3f}" for end in (min, max))
        factors = [f"{len(factors)} factors from {smallest} to {largest}"]
    moved = [abs(shift) for shift in shifts["location"]]
    words = render(
        "surveysynth.release.documents", "templates/inference.j2", status=record.status,
        debiased=record.debiased, reason=record.reason, databases=record.databases,
        records=f"{record.n_simulated:,}", rounds=record.rounds, scales=", ".join(factors),
        locations=f"{max(moved):.2g}" if moved else "",
    )  # fmt: skip
    return " ".join(words.split())


TEST_WARNING = (
    "TEST RUN, NOT PRIVATE: this is a test and not private. Its random numbers come from a stated "
    "seed, with which the protection can be undone. Do not publish."
)


@dataclass(frozen=True)
class ReleaseFacts:
    """Public by construction: no field comes from confidential records.

    ``test`` says that the random numbers have a stated seed; ``df_design`` is the number of PSUs
    less the number of strata; ``engine`` has the versions of what runs a Stan program;
    ``calibration`` has the published totals that weights are calibrated to, ``counts`` those that
    they take from an earlier release.
    """

    spec: Spec
    design: PublicDesign
    mechanism: Mechanism
    statement: Statement
    labels: Labels
    df_design: float
    test: bool
    clusters: Clusters | None = None
    debias: DebiasRecord | None = None
    engine: Mapping[str, str] = field(default_factory=dict)
    calibration: Calibration | None = None
    counts: ReleaseCounts | None = None

    def with_public_totals(self) -> "ReleaseFacts":
        """Add to the statement that weights take counts, or are calibrated to published totals."""
        made = self
        if self.counts is not None:
            made = made._with_guarantee(
                f"By factors for whole cells, {self.counts.words}. This follows the mechanism, "
                "uses published numbers alone, and costs nothing. That release has a cost of its "
                "own: for both together the costs add up, as the ledger of the survey does."
            )
        if self.calibration is not None:
            made = made._with_guarantee(
                f"The weights of every synthetic dataset are calibrated by "
                f"{self.calibration.words}. This follows the mechanism, uses published numbers "
                "alone, and costs nothing.",
                "The totals of the calibration are public: they come from a census, a register, or "
                "another published source, and not from this survey.",
            )
        return made

    def _with_guarantee(self, paragraph: str, *assumptions: str) -> "ReleaseFacts":
        given = self.statement
        statement = replace(
            given, guarantee=(*given.guarantee, paragraph),
            assumptions=(*given.assumptions, *assumptions),
        )  # fmt: skip
        return replace(self, statement=statement)

    def with_design(self, design: PublicDesign) -> "ReleaseFacts":
        """Return the facts with the design of the draws, whose transforms may be learned."""
        return self if design is self.design else replace(self, design=design)

    def with_inference(self, record: DebiasRecord) -> "ReleaseFacts":
        """Add how the synthetic data come from the draws."""
        return replace(self._with_guarantee(inference_words(record)), debias=record)

    @property
    def settings(self) -> Settings:
        """The settings that every mechanism has."""
        return self.mechanism.settings

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the files must not be published; empty for a private release."""
        given = ((self.test, TEST_WARNING), (not self.settings.private, UNPROTECTED))
        return tuple(text for applies, text in given if applies)

    @property
    def microdata_format(self) -> MicrodataFormat:
        """The format that the specification asks for, or else that of the survey file."""
        return format_of(self.spec)

    @property
    def digits(self) -> Digits:
        """The rounding of synthetic values in the microdata and in what is computed from them."""
        return Digits(self.design, self.spec.all_tables.microdata_digits)

    @property
    def published_replicates(self) -> int:
        """The number of datasets of a draw among the microdata.

        All of them, or only the first where the others can be made again from published numbers.
        """
        return 1 if self.spec.privacy.rebuildable else self.spec.privacy.replicates_per_draw

    @property
    def title(self) -> str:
        """The caller's title, or a description of the release."""
        return self.spec.all_tables.title or "Tables from synthetic survey microdata"

    @property
    def each_table(self) -> "dict[str, ReleaseFacts]":
        """The facts of every table, by its name, "" for a table without one."""
        return {
            each.table.name or "": replace(self, spec=each) for each in self.spec.each_table
        }

    @property
    def privacy_note(self) -> str:
        """One sentence below every table; a second where settings take the release out of it."""
        outside = self.statement.outside
        return f"{self.mechanism.note} It is {outside}." if outside else self.mechanism.note


def files_of(spec: Spec) -> list[str]:
    """Return the paths of all files of tables and figures in a release."""
    return [
        f"{folder}/{file}"
        for each in spec.tables
        for folder, file, _ in table_files(each.statistics, each.formats, each.name or "")
    ]


def rounding_of(spec: Spec, labels: Labels) -> dict[tuple[str, str | None], AnyRounding]:
    """Return the rounding of each statistic and outcome; an outcome's own digits come first."""

    def rounding(kind: Statistic, digits: int | None) -> AnyRounding:
        base = spec.all_tables.round_counts
        if base is not None and not (kind.needs_outcome or kind.percent or kind.unit == "ratio"):
            return Rounding(float(base), 0)  # counts and their differences
        if kind.percent:
            return to_percent(1 if digits is None else digits)
        return Warranted() if digits is None else to_digits(digits)

    return {
        (kind.name, outcome): rounding(kind, None if outcome is None else labels.of(outcome).digits)
        for kind in map(statistic_of, spec.all_tables.statistics)
        for outcome in (spec.synthesizer.outcome if kind.needs_outcome else (None,))
    }
