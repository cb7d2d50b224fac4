"""Noise that is drawn and not yet released: its rho is spent, whatever follows.

As soon as the noise is drawn, the run is recorded in the ledger, and the noisy numbers beside it.
If the run is then refused or stopped, the next run with the same data and specification continues
from the same numbers, as the same run: nothing is counted twice, and never too little.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth.config.sections import REPLICATE_KEYS
from surveysynth.errors import InputError
from surveysynth.release.folder.atomic import (
    PRIVATE_MODE,
    signals_delayed,
    write_whole,
)
from surveysynth.release.folder.bundle import DRAWN, BundlePlan, copies_of
from surveysynth.release.folder.ledger import (
    LEDGER_NAME,
    LedgerEntry,
    merge,
    read_ledger,
    text_of,
)
from surveysynth.release.folder.ledger_file import Ledger

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec

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
        run, statistics = waiting
        self.entry = replace(self.entry, run=run)
        self._record()
        return statistics

    def keep(self, statistics: Mapping[str, Any]) -> None:
        """Record the run and its noisy numbers.

        Raises ``InputError`` where that fails, and ``RefusedError`` where another run has spent the
        budget meanwhile, so that nobody sees a result of the numbers.
        """
        self._record(json.dumps({"purpose": self.purpose, "statistics": statistics}))

    def _waiting(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return the unreleased run of this purpose, and its noisy numbers."""
        for path in _files(self.plan):
            kept = _read(path)
            if kept["purpose"] == self.purpose:
                return path.stem, kept["statistics"]
        return None

    def _record(self, statistics: str | None = None) -> None:
        """Record the run in the ledger, then its noisy numbers, if they are new."""
        with signals_delayed():  # Ctrl-C finds the run and its numbers recorded, or neither
            self._put_down(statistics)
            self.used = True

    def _put_down(self, statistics: str | None) -> None:
        folder = self.plan.confidential
        entries = self.ledger.record([self.entry], copies_of(self.plan))
        try:
            folder.parent.mkdir(exist_ok=True)
            folder.mkdir(mode=PRIVATE_MODE, exist_ok=True)
            copy = merge(read_ledger(folder / LEDGER_NAME), entries)
            write_whole(folder / LEDGER_NAME, text_of(copy))
            if statistics is not None:
                write_whole(folder / DRAWN / f"{self.entry.run}.json", statistics)
        except OSError as error:
            raise InputError(
                f"the noisy numbers of the run could not be kept in {folder}: "
                f"{error.strerror or 'no reason given'}; nothing was released and they are lost. "
                f"The run is recorded in the ledger {self.ledger.path} nevertheless."
            ) from None

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


def purpose_of(spec: "Spec", entry: LedgerEntry) -> str:
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


def _files(plan: BundlePlan) -> Iterator[Path]:
    for folder in plan.confidential_folders:
        if (folder / DRAWN).is_dir():
            yield from sorted((folder / DRAWN).glob("*.json"))


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {"purpose": str(kept["purpose"]), "statistics": dict(kept["statistics"])}
    except (ValueError, TypeError, KeyError):
        raise InputError(
            f"{path} is damaged: its noisy numbers are lost, and their rho stays spent. Move the "
            "file away; another run draws new noise."
        ) from None
