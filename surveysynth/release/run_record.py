"""The ledger entry of a run: from a specification to an entry, a ledger and a budget."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth._support.versions import version_of
from surveysynth.errors import InputError, RefusedError
from surveysynth.release.folder.bundle import BundlePlan
from surveysynth.release.folder.ledger import LedgerEntry, Limit, file_sha256
from surveysynth.release.folder.ledger_file import OF_FILE, Ledger, survey_id
from surveysynth.release.folder.pending_noise import PendingNoise, purpose_of
from surveysynth.survey.files import open_table

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.survey.survey import PublicDesign


def run_to_record(
    spec: "Spec", plan: BundlePlan, ledger: str | Path | None, *, test: bool
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
    spec: "Spec", path: str | Path | None = None, *, survey: str | None = None
) -> Ledger:
    """Return the ledger of the survey of a specification, or of ``survey``, with the budget."""
    budget = spec.privacy.budget
    limit = None if budget is None else Limit(budget, in_rho=spec.privacy.rho_given is not None)
    return Ledger.of(survey or survey_id(spec.survey.id, spec.data_path), path, limit)


def spending(spec: "Spec", ledger: Ledger) -> tuple[list[str], str]:
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


def cost_words(spec: "Spec") -> str:
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


def entry_of(spec: "Spec", *, test: bool, released: bool = True) -> LedgerEntry:
    """Return the entry of one run on files; ``released`` is false for comparisons.

    Raises ``InputError`` where the data file cannot be read.
    """
    return _entry(
        spec,
        survey=survey_id(spec.survey.id, spec.data_path),
        spec_sha256=file_sha256(spec.path),
        data_sha256=_sha256_of_data(spec.data_path),
        test=test,
        released=released,
    )


def entry_in_memory(
    spec: "Spec", design: "PublicDesign", survey: str, *, test: bool
) -> LedgerEntry:
    """Return the entry of one run on a survey in memory, with the id that its caller gives it."""
    content = spec.model_dump_json(exclude={"path"})
    entry = _entry(
        spec, survey=survey, spec_sha256=hashlib.sha256(content.encode()).hexdigest(),
        data_sha256="", test=test, released=True,
    )  # fmt: skip
    return with_unit_size(entry, spec, design)


def _entry(
    spec: "Spec", *, survey: str, spec_sha256: str, data_sha256: str, test: bool, released: bool
) -> LedgerEntry:
    from surveysynth.config.build import mechanism_of, method_name

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


def with_unit_size(entry: LedgerEntry, spec: "Spec", design: "PublicDesign") -> LedgerEntry:
    """Return the entry with the size of the largest unit of protection, a public number."""
    from surveysynth.config.build import noisy_settings_of

    if not entry.in_rho:
        return entry
    return replace(entry, unit_size=noisy_settings_of(spec).unit_size(design))


def _sha256_of_data(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError:
        open_table(path)  # which says what is wrong
        raise
