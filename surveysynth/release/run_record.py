"""A run in the ledger, and its noise: what is drawn is spent, whatever follows.

As soon as the noise is drawn, the run is recorded in the ledger, and the noisy numbers beside it.
If the run is then refused or stopped, the next run with the same data and specification continues
from the same numbers, as the same run: nothing is counted twice, and never too little.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surveysynth._support.resources import version_of
from surveysynth.config.build import mechanism_of, method_name, noisy_settings_of
from surveysynth.config.sections import REPLICATE_KEYS
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.release.atomic import PRIVATE_MODE, signals_delayed, write_atomically
from surveysynth.release.folder import DRAWN, BundlePlan, copies_of
from surveysynth.release.ledger import (
    LEDGER_NAME,
    OF_FILE,
    Ledger,
    LedgerEntry,
    Limit,
    file_sha256,
    merge,
    read_ledger,
    survey_id,
    text_of,
)
from surveysynth.survey.files import open_table
from surveysynth.survey.survey import PublicDesign

#: What may change between the noise and another attempt: how long chains run, and no more.
_OF_CHAINS = {"chains", "draws", "warmup"}


@dataclass
class PendingNoise:
    """The noise of one run: looks up noise drawn earlier, and records new noise.

    ``entry`` is the run in the ledger; ``used`` whether noise has been drawn for it, ``published``
    whether its release is in its place.
    """

    plan: BundlePlan
    ledger: Ledger
    entry: LedgerEntry
    purpose: str
    used: bool = False
    published: bool = False

    def require_room(self) -> None:
        """Raise ``RefusedError`` where the budget does not allow the run.

        Raises ``InputError`` where it could not be recorded.

        A run that continues from pending noise is in the ledger already and needs no room.
        """
        self.ledger.require_writable()
        if self._waiting() is None:
            self.ledger.require_room(self.entry, copies_of(self.plan))

    def earlier(self) -> Mapping[str, Any] | None:
        """Return noisy numbers of an unreleased run of this purpose; None without any.

        This run then takes its place in the ledger.
        """
        waiting = self._waiting()
        if waiting is None:
            return None
        self.entry = replace(self.entry, run=waiting[0])
        self._record()
        return waiting[1]

    def keep(self, statistics: Mapping[str, Any]) -> None:
        """Record the run and its noisy numbers.

        Raises ``InputError`` where that fails, and ``RefusedError`` where another run has spent the
        budget meanwhile, so that nobody sees a result of the numbers.
        """
        self._record(json.dumps({"purpose": self.purpose, "statistics": statistics}))

    def _waiting(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return the unreleased run of this purpose, and its noisy numbers."""
        folders = self.plan.confidential_folders
        for path in (file for each in folders for file in sorted((each / DRAWN).glob("*.json"))):
            try:
                kept = json.loads(path.read_text(encoding="utf-8"))
                purpose, statistics = str(kept["purpose"]), dict(kept["statistics"])
            except (ValueError, TypeError, KeyError):
                raise InputError(
                    f"{path} is damaged: its noisy numbers are lost, and their rho stays spent. "
                    "Move the file away; another run draws new noise."
                ) from None
            if purpose == self.purpose:
                return path.stem, statistics
        return None

    def _record(self, statistics: str | None = None) -> None:
        """Record the run in the ledger, then its noisy numbers, if they are new."""
        folder = self.plan.confidential
        with signals_delayed():  # Ctrl-C finds the run and its numbers recorded, or neither
            entries = self.ledger.record([self.entry], copies_of(self.plan))
            try:
                folder.parent.mkdir(exist_ok=True)
                folder.mkdir(mode=PRIVATE_MODE, exist_ok=True)
                copy = merge(read_ledger(folder / LEDGER_NAME), entries)
                write_atomically(folder / LEDGER_NAME, text_of(copy))
                if statistics is not None:
                    write_atomically(folder / DRAWN / f"{self.entry.run}.json", statistics)
            except OSError as error:
                raise InputError(
                    f"the noisy numbers of the run could not be kept in {folder}: "
                    f"{error.strerror or 'no reason given'}; nothing was released and they are "
                    f"lost. The run is recorded in the ledger {self.ledger.path} nevertheless."
                ) from None
            self.used = True

    @property
    def waits(self) -> bool:
        """True if noise has been drawn for the run and not released yet."""
        return self.used and self._waiting() is not None

    @property
    def stopped(self) -> str:
        """The message after an interrupted run."""
        return (
            f"interrupted; nothing was released. {self._spent} Any change but longer chains or "
            "[[calibration]], or another folder, draws new noise, whose cost is added."
        )

    @property
    def advice(self) -> str:
        """Advice after a run that was not released."""
        return (
            f"{self._spent} Longer chains may help (draws and warmup in [synthesizer]), and "
            "[[calibration]] may change; any other change draws new noise, whose cost is added."
        )

    @property
    def _spent(self) -> str:
        return (
            f"Its noise is drawn and its budget spent: the run is recorded in {self.ledger.path}, "
            f"and the noisy numbers are kept in {self.plan.confidential}. Release the same "
            "specification and data again, to the same folders: the release then continues from "
            "these numbers at no further cost."
        )


def purpose_of(spec: Spec, entry: LedgerEntry) -> str:
    """Return what noise is for: a hash of the data, the version and the specification.

    The length of chains, calibration, and the keys for the ledger are left out of it.
    """
    content = spec.model_dump(
        mode="json",
        exclude={
            "path": True, "synthesizer": _OF_CHAINS, "privacy": {"budget"},
            "survey": {"id", *REPLICATE_KEYS},
            "calibration": True,  # follows the noise, like everything that is published
        },
    )  # fmt: skip
    whole = [entry.data_sha256, entry.version, content]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def run_to_record(
    spec: Spec, plan: BundlePlan, ledger: str | Path | None, *, test: bool
) -> PendingNoise:
    """Return the run that is about to begin, with its place in the ledger.

    Raises ``InputError`` where the ledger cannot be read, or is in a folder that would be replaced.
    """
    kept = ledger_of(spec, ledger)
    for folder in (plan.out, plan.confidential):
        if kept.path.is_relative_to(folder):
            raise InputError(
                f"the ledger {kept.path} lies in {folder}, which the release replaces; name a "
                "file in another place."
            )
    entry = entry_of(spec, test=test)
    return PendingNoise(plan, kept, entry, purpose_of(spec, entry))


@dataclass(frozen=True)
class Recorder:
    """A run of ``ss.tables`` and its ledger.

    Noise is recorded as soon as it is drawn, and is not kept for another run.
    """

    ledger: Ledger
    entry: LedgerEntry

    def earlier(self) -> None:
        """Return no earlier noise."""

    def keep(self, statistics: Mapping[str, Any]) -> None:
        """Record the run, once; raises as ``Ledger.record``."""
        self.ledger.record([self.entry])


def ledger_of(
    spec: Spec, path: str | Path | None = None, *, survey: str | None = None
) -> Ledger:
    """Return the ledger of the survey of a specification, or of ``survey``, with the budget."""
    budget = spec.privacy.budget
    limit = None if budget is None else Limit(budget, in_rho=spec.privacy.rho_given is not None)
    return Ledger.of(survey or survey_id(spec.survey.id, spec.data_path), path, limit)


def spending(spec: Spec, ledger: Ledger) -> tuple[list[str], str]:
    """Return the totals of a ledger before a release, and why its budget has no room.

    The reason is "" where there is room. Reads the settings and the ledger, and no records.
    """
    summary = ledger.summary()
    lines = summary.sentences() if summary.runs or summary.strict_runs else []
    try:
        ledger.require_room(entry_of(spec, test=False))
    except RefusedError as refusal:
        return lines, str(refusal)
    if ledger.limit is not None:
        lines.append("Ledger: the budget has room for this release.")
    return lines, ""


def cost_words(spec: Spec) -> str:
    """Return what one release by a specification spends."""
    cost = spec.privacy.cost
    if cost is not None:
        return f"rho {cost.rho:.3g} (epsilon {cost.epsilon:.4g} at delta {cost.delta:.3g})"
    return f"epsilon {spec.privacy.epsilon:g}" if spec.privacy.private else "no protection at all"


def hints_of(ledger: Ledger, entry: LedgerEntry, *, named: bool) -> tuple[str, ...]:
    """Return hints on spending that a ledger may miss; ``named``: the caller named its file."""
    hints = []
    if ledger.survey.startswith(OF_FILE):
        hints.append(
            "the survey is identified by the path of its file alone: a copy, or the file at "
            "another path, is counted separately. Give both the same id in [survey]."
        )
    others = 0 if named else ledger.same_data_elsewhere(entry.data_sha256)
    if others:
        hints.append(
            f"the very same data are recorded under {others} other id{'s' if others > 1 else ''} "
            f"in {ledger.path.parent}; spending there adds up too. Give them one id."
        )
    return tuple(f"Ledger: {hint}" for hint in hints)


def entry_of(spec: Spec, *, test: bool, released: bool = True) -> LedgerEntry:
    """Return the entry of one run on files; ``released`` is false for comparisons.

    Raises ``InputError`` where the data file cannot be read.
    """
    try:
        data_sha256 = file_sha256(spec.data_path)
    except OSError:
        open_table(spec.data_path)  # which says what is wrong
        raise
    survey = survey_id(spec.survey.id, spec.data_path)
    return _entry(
        spec, survey, file_sha256(spec.path), data_sha256, test=test, released=released
    )


def entry_in_memory(
    spec: Spec, design: PublicDesign, survey: str, *, test: bool
) -> LedgerEntry:
    """Return the entry of one run on a survey in memory, with the id that its caller gives it."""
    content = spec.model_dump_json(exclude={"path"})
    spec_sha256 = hashlib.sha256(content.encode()).hexdigest()
    entry = _entry(spec, survey, spec_sha256, "", test=test, released=True)
    return with_unit_size(entry, spec, design)


def _entry(
    spec: Spec, survey: str, spec_sha256: str, data_sha256: str, *, test: bool, released: bool
) -> LedgerEntry:
    privacy, settings = spec.privacy, mechanism_of(spec).settings
    cost = privacy.cost
    return LedgerEntry(
        survey=survey,
        spec=spec.path.name,
        spec_sha256=spec_sha256,
        data_sha256=data_sha256,
        model=method_name(spec.synthesizer.model),
        epsilon=settings.epsilon if settings.private else None,
        m=settings.m,
        test=test,
        version=version_of("surveysynth"),
        released=released,
        mechanism=privacy.mechanism,
        rho=None if cost is None else cost.rho,
        delta=None if cost is None else cost.delta,
        protect=privacy.protect,
    )


def with_unit_size(entry: LedgerEntry, spec: Spec, design: PublicDesign) -> LedgerEntry:
    """Return the entry with the size of the largest unit of protection, a public number."""
    if not entry.in_rho:
        return entry
    return replace(entry, unit_size=noisy_settings_of(spec).unit_size(design))
