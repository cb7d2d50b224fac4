"""Totals of the runs on a survey, by mechanism and unit of protection, and budgets for them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from surveysynth._support.fragment import fragment
from surveysynth.mechanisms.noisy_statistics.accounting import epsilon_of, rho_of
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.folder.ledger import LedgerEntry


@dataclass(frozen=True)
class LedgerSummary:
    """Totals of the runs on one survey; ``epsilon`` and ``rho`` count runs that may be published.

    Each is of its own mechanism. rho is for single records: a run that protects a unit protects
    each of its records, at no larger rho, and counts in full. ``unit_rho`` is for the units of a
    column, by column. It is a total for them only if it has all ``strict_runs`` (``whole_units``):
    a run that protects records protects a unit of k of them at k^2 times its rho, and only its own
    data show k.
    """

    survey: str
    epsilon: float
    runs: int
    unprotected: int
    tests: int
    other_surveys: int
    comparisons: int = 0
    rho: float = 0.0
    strict_runs: int = 0
    strict_epsilon: float = 0.0
    delta: float = 0.0
    unit_rho: Mapping[str, float] = field(default_factory=dict)
    whole_units: str | None = None

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        """Return the sentences, for notebooks."""
        return fragment(f"Ledger of {self.survey}", lines=self.sentences())

    def sentences(self) -> list[str]:
        """Return sentences for the person who ran the command, without realised values."""
        lines = []
        if self.unprotected:
            lines.append(
                f"{_runs(self.unprotected)} on survey {self.survey!r} had no protection at all; no "
                "total epsilon holds for it."
            )
        elif self.runs or not self.strict_runs:
            lines.append(
                f"total epsilon spent on survey {self.survey!r} so far: {self.epsilon:g} in "
                f"{_runs(self.runs)}."
            )
        lines += [*self._of_strict(), *self._not_counted()]
        return [f"Ledger: {line}" for line in lines]

    def _of_strict(self) -> list[str]:
        """Return the totals of noisy statistics, and what they must not be added to."""
        if not self.strict_runs:
            return []
        whom = f" for units of {self.whole_units!r}" if self.whole_units else ""
        lines = [
            f"total rho of noisy statistics spent on survey {self.survey!r} so far{whom}: "
            f"{self.rho:.6g} in {_runs(self.strict_runs)} (epsilon {self.strict_epsilon:.4g} "
            f"at delta {self.delta:.3g})."
        ]
        if self.unit_rho and not self.whole_units:
            some = ", ".join(f"{name!r} {rho:.6g}" for name, rho in self.unit_rho.items())
            lines.append(
                "that total is for single records. Some of these runs protect units as a "
                f"whole (rho by column: {some}); the others protect a unit of k records at k^2 "
                "times their rho only, so that there is no total for units."
            )
        if self.runs:
            lines.append("an asymptotic epsilon and rho are two currencies, which cannot be "
                         "added.")  # fmt: skip
        return lines

    def _not_counted(self) -> list[str]:
        """Describe runs that are in no total."""
        lines = []
        if self.tests:
            lines.append(
                f"{_runs(self.tests)} with a stated seed not counted; their files are "
                "tests and must not be published."
            )
        if self.comparisons:
            lines.append(
                f"{_runs(self.comparisons)} for comparisons not counted; they release "
                "nothing, and nothing of them may be published."
            )
        if self.other_surveys:
            lines.append(
                f"{_runs(self.other_surveys)} on surveys of other ids recorded too; if they hold "
                "the same people, what they spent adds up as well."
            )
        return lines


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def summarise(entries: Sequence[LedgerEntry], survey: str) -> LedgerSummary:
    """Add up the runs on the survey with this id (basic composition, strict 1.7)."""
    here = [entry for entry in entries if entry.survey == survey]
    released = [entry for entry in here if entry.released]
    public = [entry for entry in released if not entry.test]
    counted = [entry for entry in public if not entry.in_rho]
    strict = [entry for entry in public if entry.in_rho]
    rho = float(_sum(entry.rho for entry in strict))
    units = sorted({entry.protect for entry in strict})
    by_unit = {
        unit: float(_sum(entry.rho for entry in strict if entry.protect == unit))
        for unit in units
        if unit != RECORD
    }
    delta = min((entry.delta for entry in strict if entry.delta is not None), default=0.0)
    return LedgerSummary(
        survey=survey,
        epsilon=float(_sum(entry.epsilon for entry in counted)),
        runs=len(counted),
        unprotected=sum(entry.epsilon is None for entry in counted),
        tests=len(released) - len(public),
        other_surveys=len(entries) - len(here),
        comparisons=len(here) - len(released),
        rho=rho,
        strict_runs=len(strict),
        strict_epsilon=epsilon_of(rho, delta) if strict else 0.0,
        delta=delta,
        unit_rho=by_unit,
        whole_units=units[0] if by_unit and len(units) == 1 else None,
    )


def _sum(amounts: Iterable[float | None]) -> Fraction:
    """Add decimal numbers exactly, in any order: 3 times 10.8 is 32.4."""
    return sum((Fraction(repr(amount)) for amount in amounts if amount is not None), Fraction(0))


@dataclass(frozen=True)
class Limit:
    """The limit on the total cost of all releases of a survey by one mechanism.

    ``amount`` is an epsilon. For noisy statistics it is the epsilon of all rhos at the delta of the
    release, or rho itself (``in_rho``).
    """

    amount: float
    in_rho: bool = False

    def why_not(self, entries: Sequence[LedgerEntry], asked: LedgerEntry) -> str | None:
        """Return why ``asked`` may not follow the runs on its survey; None where it may.

        Runs by another mechanism are in another currency and do not count.
        """
        before = [
            entry for entry in entries
            if entry.survey == asked.survey and entry.counted
            and entry.mechanism == asked.mechanism
        ]  # fmt: skip
        return self._strict(before, asked) if asked.in_rho else self._asymptotic(before, asked)

    def _asymptotic(self, before: Sequence[LedgerEntry], asked: LedgerEntry) -> str | None:
        if asked.epsilon is None or any(entry.epsilon is None for entry in before):
            return (
                "a release without protection (risk = 'none') is among them, and no total epsilon "
                "holds for the survey"
            )
        spent = _sum(entry.epsilon for entry in before)
        total = spent + _sum([asked.epsilon])
        if total <= _sum([self.amount]):
            return None
        return (
            f"total epsilon so far {float(spent):g} in {_runs(len(before))}, asked "
            f"{asked.epsilon:g}, together {float(total):g}, budget {self.amount:g}"
        )

    def _strict(self, before: Sequence[LedgerEntry], asked: LedgerEntry) -> str | None:
        assert asked.rho is not None  # of noisy statistics
        assert asked.delta is not None
        others = sum(entry.protect != asked.protect for entry in before)
        if asked.protect != RECORD and others:
            return (
                f"{_runs(others)} protected other units than those of {asked.protect!r}, so that "
                "there is no total for these"
            )
        spent = _sum(entry.rho for entry in before)
        total = spent + _sum([asked.rho])
        most = self.amount if self.in_rho else rho_of(self.amount, asked.delta)
        if total <= _sum([most]):
            return None
        if self.in_rho:
            return (
                f"total rho so far {float(spent):.6g} in {_runs(len(before))}, asked "
                f"{asked.rho:.6g}, together {float(total):.6g}, budget {self.amount:.6g}"
            )
        so_far = epsilon_of(float(spent), asked.delta) if before else 0.0
        together = epsilon_of(math.nextafter(float(total), math.inf), asked.delta)
        return (
            f"total rho so far {float(spent):.6g} in {_runs(len(before))} (epsilon {so_far:.6g} at "
            f"delta {asked.delta:.3g}), asked rho {asked.rho:.6g}, together rho "
            f"{float(total):.6g} (epsilon {together:.6g}), budget epsilon {self.amount:g}"
        )
