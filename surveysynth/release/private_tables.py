"""Private tables in a notebook: the published content of a release, without a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from surveysynth._support.messages import nearest
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import LEVEL, TABLE, statistic_of
from surveysynth.mechanisms.base import Statement
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.files import presentation_of
from surveysynth.release.tables.layout import Presentation, TableSet, listed, span
from surveysynth.release.tables.table import ReleaseTable
from surveysynth.release.tables.table_builder import Tables, flat_tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class PrivateTables:
    """Tables with standard errors, intervals and a stated guarantee; made by ``tables``.

    Holds what a release publishes and nothing else, so that it may be printed, pickled and passed
    on. A notebook shows it as formatted tables. ``private_tables["mean"]`` has one statistic.

    Attributes
    ----------
    tables
        By statistic, one ``ReleaseTable`` an outcome: frame, notes, level.
    presentation
        Labels, rounding and notes that readers see.
    guarantee
        The statement as data: paragraphs, assumptions, and what epsilon does not cover.
    warnings
        Why they must not be published; none for private tables.
    n
        Number of records of the survey.
    recorded
        True if a ledger has recorded the run.
    several
        Several tables by name; ``private_tables["NAME"]`` is one of them, and
        ``tables`` has all under "NAME/statistic". Empty where there is one.

    Examples
    --------
    >>> import surveysynth as ss
    >>> private_tables = ss.tables(
    ...     ss.example_survey(n=400), mechanism="pseudo_posterior", epsilon=10.8, by="gender", m=1,
    ...     inference="paper", seed=1, options={"chains": 2},
    ... )
    >>> private_tables.statistics, private_tables.private
    (('count', 'mean'), False)
    """

    tables: Mapping[str, Sequence[ReleaseTable]]
    presentation: Presentation
    guarantee: Statement
    warnings: tuple[str, ...]
    n: int
    recorded: bool = False
    several: Mapping[str, "PrivateTables"] = field(default_factory=dict)

    @classmethod
    def of(
        cls, facts: ReleaseFacts, tables: Mapping[str, Tables], *, recorded: bool = False
    ) -> "PrivateTables":
        """Make the tables of a release with these facts, by name."""

        def of_one(each: ReleaseFacts, made: Tables) -> "PrivateTables":
            kept = {name: tuple(of_outcomes) for name, of_outcomes in made.items()}
            return cls(
                kept, presentation_of(each), each.statement, each.warnings, each.design.n, recorded
            )

        if not facts.spec.named_tables:
            return of_one(facts, tables[""])
        several = {name: of_one(each, tables[name]) for name, each in facts.each_table.items()}
        return replace(of_one(facts, flat_tables(tables)), several=several)

    def __repr__(self) -> str:
        each = [table for of_outcomes in self.tables.values() for table in of_outcomes]
        outcomes = dict.fromkeys(table.outcome for table in each if table.outcome is not None)
        of_what = f" of {listed(tuple(outcomes))}" if outcomes else ""
        by = f" by {listed(each[0].by)}" if each[0].by else ""
        what = (
            f"{len(self.several)} tables of {self.n:,} records: {listed(tuple(self.several))}"
            if self.several
            else f"Tables of {self.n:,} records: {listed(self.statistics)}{of_what}{by}, "
            f"{span(table.rows for table in each)} rows each"
        )
        recorded = (
            "Their cost is recorded in the ledger of the survey."
            if self.recorded
            else "Their cost is in no ledger (survey_id was not given); it adds up nevertheless."
        )
        last = [self.presentation.privacy_note, *([recorded] if self.private else [])]
        return "\n".join([*self.warnings, what, *last])

    def _repr_html_(self) -> str:
        """Return formatted tables, for notebooks."""
        from surveysynth.release.writers.html import render_fragment

        if self.several:
            return "\n".join(each._repr_html_() for each in self.several.values())
        shown = TableSet(self.tables, self.presentation)
        return "\n".join(map(render_fragment, shown.layouts.values()))

    def __getitem__(self, statistic: str) -> "PrivateTables":
        """Return the tables of one statistic, or one of several tables by its name.

        "NAME/statistic" is one statistic of a table.
        """
        if statistic in self.several:
            return self.several[statistic]
        if self.several:
            name, _, of_one = str(statistic).partition("/")
            if name not in self.several:
                raise InputError(
                    f"there is no table {statistic!r}; there are {listed(tuple(self.several))}."
                    f"{nearest(str(statistic), (*self.several, *self.tables))}"
                )
            return self.several[name][of_one]
        return replace(self, tables={statistic: self._of(statistic)})

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics, in the order that they were asked for."""
        return tuple(self.tables)

    @property
    def private(self) -> bool:
        """True if there is a guarantee; tests with a seed have none."""
        return not self.warnings

    @property
    def statement(self) -> str:
        """The guarantee, its assumptions and its limits, in words (Markdown)."""
        return "\n\n".join([*self.warnings, *self.guarantee.paragraphs])

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """Unrounded numbers of all tables below each other.

        The columns are statistic, outcome (empty for counts), the by columns, is_margin, estimate,
        se, df, df_design, ci_lower, ci_upper, n, flag; with shares, a level after the outcome
        (empty for others). For several tables the name comes first, and a by column that a table
        does not have is missing.
        """
        import pandas as pd

        parts = []
        if self.several:
            for name, each in self.several.items():
                parts.append(each.frame.copy())
                parts[-1].insert(0, TABLE, name)
            return pd.concat(parts, ignore_index=True)
        levels = any(table.categories for several in self.tables.values() for table in several)
        for statistic, of_outcomes in self.tables.items():
            for table in of_outcomes:
                part = table.frame.copy()
                part.insert(0, "statistic", statistic)
                part.insert(1, "outcome", table.outcome or "")
                if levels:
                    part.insert(2, LEVEL, part.pop(LEVEL) if table.categories else "")
                parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def plot(self, statistic: str | None = None) -> "Figure":
        """Draw estimates with their intervals: a row for each cell or margin, a panel per outcome.

        Parameters
        ----------
        statistic
            The one to show; None for the first that is of an outcome, or else the first.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show automatically; ``savefig`` writes it.

        Raises
        ------
        InputError
            For a statistic that there is no table of, and where there are several tables: choose
            one first, as ``private_tables["NAME"].plot()``.
        """
        from surveysynth.release.writers.figures import display_figure

        if self.several:
            raise InputError(
                f"choose one of several tables first, such as private_tables["
                f"{next(iter(self.several))!r}].plot()."
            )
        of_outcomes = (name for name in self.tables if statistic_of(name).needs_outcome)
        chosen = statistic or next(of_outcomes, self.statistics[0])
        return display_figure(self._of(chosen), self.presentation)

    def _of(self, statistic: str) -> Sequence[ReleaseTable]:
        if statistic not in self.tables:
            raise InputError(
                f"there is no table of {statistic!r}; there are {listed(self.statistics)}."
                f"{nearest(str(statistic), self.tables)}"
            )
        return self.tables[statistic]
