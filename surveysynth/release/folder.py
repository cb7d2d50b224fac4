"""The folder of a release, written whole or not at all.

Everything goes to a temporary folder beside the target and is renamed into place at the end. An
exception or Ctrl-C at any moment leaves what was there before, and nothing else.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from surveysynth.errors import InputError
from surveysynth.release.atomic import (
    PRIVATE_MODE,
    REPLACED,
    flush,
    inside_parents,
    locked,
    make_private,
    partial_name,
    refused_by_the_system,
    remove_abandoned,
    signals_delayed,
    temporary_folder,
    try_writing,
    write_atomically,
)
from surveysynth.release.ledger import LEDGER_NAME, Ledger, LedgerEntry, merge, read_ledger, text_of

RELEASE = "release"
CONFIDENTIAL = "confidential"
EARLIER = "earlier_runs"
#: Noisy numbers of runs that were not released (``run_record``).
DRAWN = "drawn_noise"

REALISED_NAME = "realised.json"
RECORDS_STEM = "records"
ADEQUACY_PAGE, ADEQUACY_ROWS = "adequacy.html", "adequacy.csv"
#: What ``adequacy`` compares with the sample (``files``).
COMPARED_NAME = "draws.json"
PRIVACY_NAME = "privacy.json"
#: The page that links all others.
INDEX_NAME = "index.html"
#: For a review board, as a page and as text.
DOSSIER_NAMES = ("dossier.html", "dossier.md")

_OF_UNRELEASED = frozenset({LEDGER_NAME, partial_name(LEDGER_NAME), DRAWN})
_OWN_NAMES = _OF_UNRELEASED | {
    EARLIER, REALISED_NAME, f"{RECORDS_STEM}.csv", f"{RECORDS_STEM}.parquet", COMPARED_NAME,
    ADEQUACY_PAGE, ADEQUACY_ROWS,
}  # fmt: skip


@dataclass(frozen=True)
class BundlePlan:
    """The folders of a release: absolute paths, checked before any computation.

    ``confidential`` is inside ``out`` unless the caller named another folder; ``overwrite``:
    whether the run may replace a release.
    """

    out: Path
    confidential: Path
    overwrite: bool = False

    @property
    def inside(self) -> Path:
        """The folder of confidential results unless the caller named another."""
        return self.out / CONFIDENTIAL

    @property
    def confidential_folders(self) -> list[Path]:
        """Folders in which earlier releases may have left confidential results."""
        return list(dict.fromkeys([self.confidential, self.inside]))

    @property
    def targets(self) -> list[Path]:
        """The folders that the run replaces."""
        return [self.out] if self.confidential_inside else [self.confidential, self.out]

    @property
    def confidential_inside(self) -> bool:
        """True if the confidential folder is part of the release folder."""
        return self.confidential == self.inside


@dataclass(frozen=True)
class Staging:
    """Temporary folders to write to; ``release`` is public, ``confidential`` has mode 0700."""

    release: Path
    confidential: Path


def plan_bundle(out: Path, confidential: Path | None = None, *, overwrite: bool) -> BundlePlan:
    """Check the targets.

    Raises ``InputError`` if ``out`` exists (with ``overwrite``: if it is not a folder that a
    release wrote), if a confidential folder holds other files, if one target is in the other, or if
    a target cannot be written.
    """
    target = out.expanduser().resolve()
    plan = BundlePlan(
        target,
        target / CONFIDENTIAL if confidential is None else confidential.expanduser().resolve(),
        overwrite,
    )
    inner, outer = plan.confidential, plan.out
    nested = inner.is_relative_to(outer) or outer.is_relative_to(inner)
    if nested and not plan.confidential_inside:
        raise InputError(
            f"the confidential folder {inner} and the output folder {outer} lie within each "
            f"other; name a folder outside (or leave --confidential out: {CONFIDENTIAL}/ inside "
            "the output folder is kept apart from what is published)."
        )
    for place in plan.targets:
        try_writing(place, PRIVACY_NAME)
        remove_abandoned(place)
    _check_targets(plan)
    return plan


def _check_targets(plan: BundlePlan) -> None:
    out, confidential = plan.out, plan.confidential
    if not plan.confidential_inside:
        if confidential.exists() and not confidential.is_dir():
            raise InputError(
                f"the confidential folder {confidential} is not a folder; name another."
            )
        foreign = _names(confidential) - _OWN_NAMES
        if foreign:
            raise InputError(
                f"the confidential folder {confidential} holds other files ({len(foreign)}), which "
                "no release wrote; name a folder of its own for the results and the ledger."
            )
    if not out.exists() or (
        # Nothing but the record of runs that were not released.
        _names(out) == {CONFIDENTIAL}
        and plan.inside.is_dir() and _names(plan.inside) <= _OF_UNRELEASED
    ):
        return
    if not out.is_dir():
        raise InputError(f"{out} is not a folder; name another output folder.")
    ours = _names(out) <= {RELEASE, CONFIDENTIAL} and (out / RELEASE / PRIVACY_NAME).is_file()
    if _names(out) and not ours:
        raise InputError(
            f"the folder {out} holds other files than a release, which are never overwritten; name "
            "another output folder."
        )
    if not plan.overwrite:
        raise InputError(
            f"the output folder {out} exists; name another or replace it with --overwrite."
        )


def _names(folder: Path) -> set[str]:
    """Return the contents of a folder; nothing if there is none."""
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


@contextmanager
def reserved(plan: BundlePlan, files: Iterable[str]) -> Iterator[None]:
    """Keep the targets for one run, from before its noise to its end.

    ``files``: what it will write, relative to the release. Raises ``InputError`` where another run
    has a target, or one cannot be written, and as ``plan_bundle`` does: all before any cost.
    """
    longest = max([PRIVACY_NAME, *files], key=len)
    with ExitStack() as held:
        for target in plan.targets:
            with refused_by_the_system(target):
                held.enter_context(inside_parents(target))
                held.enter_context(locked(target, seconds=0))
            try_writing(target, f"{RELEASE}/{longest}")
        _check_targets(plan)  # another run may just have ended
        yield


@contextmanager
def staged(plan: BundlePlan) -> Iterator[Staging]:
    """Make temporary folders beside the targets; what was not published is removed at the end.

    Raises ``InputError`` when the file system refuses (full, read-only).
    """
    with _temporary(f"the release could not be written to {plan.out}") as beside:
        out = beside(plan.out) / "out"
        release = out / RELEASE
        release.mkdir(parents=True)
        confidential = out / CONFIDENTIAL
        if not plan.confidential_inside:
            confidential = beside(plan.confidential) / "out"
        confidential.mkdir(mode=PRIVATE_MODE)
        yield Staging(release, confidential)


@contextmanager
def _temporary(what_failed: str) -> Iterator[Callable[[Path], Path]]:
    """Yield a function that makes temporary folders beside targets; they are deleted at last."""
    held = ExitStack()

    def beside(target: Path) -> Path:
        held.enter_context(inside_parents(target))
        return held.enter_context(temporary_folder(target))

    try:
        with held:
            yield beside
    except OSError as error:
        raise InputError(
            f"{what_failed}: {error.strerror or 'no reason given'}; nothing was left behind."
        ) from None


def plan_folder(
    out: Path, *, overwrite: bool, own: Collection[str], marker: str, what: str
) -> Path:
    """Check the target of a confidential folder that is written whole or not at all.

    ``own``: the names that such a folder may hold; ``marker``: the one that it always has;
    ``what``: what it is called in messages. Raises ``InputError`` as ``plan_bundle`` does.
    """
    target = out.expanduser().resolve()
    try_writing(target, marker)
    remove_abandoned(target)
    if target.exists():
        names = _names(target)
        if not target.is_dir() or (names and not (names <= set(own) and marker in names)):
            raise InputError(
                f"{target} is or holds other files than {what}, which are never overwritten; name "
                "another output folder."
            )
        if not overwrite:
            raise InputError(
                f"the output folder {target} exists; name another or replace it with --overwrite."
            )
    return target


@contextmanager
def staged_folder(target: Path, what: str) -> Iterator[Path]:
    """Make a temporary folder of mode 0700 beside the target; it is removed unless published."""
    with _temporary(f"{what} could not be written to {target}") as beside:
        folder = beside(target) / "out"
        folder.mkdir(mode=PRIVATE_MODE)
        yield folder


def publish_folder(
    folder: Path, target: Path, ledger: Ledger, runs: Sequence[LedgerEntry]
) -> list[LedgerEntry]:
    """Record the runs, flush everything to disk and rename it into place; all entries.

    The folder has a copy of the ledger, with what a folder that is replaced had in its own.
    """
    with locked(target):
        copies = read_ledger(target / LEDGER_NAME)
        make_private(folder)
        flush(folder)
        with signals_delayed():
            entries = ledger.record(runs, copies)
            write_atomically(folder / LEDGER_NAME, text_of(merge(copies, entries)))
            _swap([(folder, target)])
    return entries


def swap_in(folder: Path, target: Path) -> None:
    """Flush a folder without a ledger to disk and rename it into place."""
    flush(folder)
    _swap([(folder, target)])


def publish(
    plan: BundlePlan, staging: Staging, ledger: Ledger, run: LedgerEntry
) -> list[LedgerEntry]:
    """Record the run in the ledger, then rename what is staged into place, in ``reserved``.

    Returns all entries of the ledger. Results of earlier runs move to ``earlier_runs/`` of the
    confidential folder, which has a copy of the ledger too. Raises ``RefusedError`` and
    ``InputError`` as ``Ledger.record`` does, and ``InputError`` where the folders cannot be renamed
    any more: the run stays in the ledger then.
    """
    copies = copies_of(plan)
    for folder in filter(Path.is_dir, plan.confidential_folders):
        _keep_earlier(folder, staging.confidential, released=run.run)
    make_private(staging.confidential)
    moves = [(staging.release.parent, plan.out)]
    if not plan.confidential_inside:
        # First the ledger: should power fail between the two, it has a run too many, not one
        # too few.
        moves.insert(0, (staging.confidential, plan.confidential))
    for new, _ in moves:
        flush(new)
    with signals_delayed(forgotten=True):
        entries = ledger.record([run], copies)
        try:
            copy = merge(copies, entries)
            write_atomically(staging.confidential / LEDGER_NAME, text_of(copy))
            _swap(moves)
        except OSError as error:
            raise InputError(
                f"the release could not be put in its place, {plan.out}: "
                f"{error.strerror or 'no reason given'}. Nothing was published, but the run "
                f"is recorded in the ledger {ledger.path} and counts as spent."
            ) from None
    return entries


def copies_of(plan: BundlePlan) -> list[LedgerEntry]:
    """Return the runs in copies of ledgers that earlier releases left in these folders."""
    return merge(*(read_ledger(folder / LEDGER_NAME) for folder in plan.confidential_folders))


def _keep_earlier(folder: Path, staged_confidential: Path, *, released: str) -> None:
    """Copy what earlier runs left in ``folder``, as hard links where possible.

    Noise that is drawn and not released is kept, but for that of the run that is being released.
    """
    archive = staged_confidential / EARLIER
    kept = sorted((folder / EARLIER).iterdir()) if (folder / EARLIER).is_dir() else []
    results = [path for path in folder.iterdir() if path.name not in _OF_UNRELEASED | {EARLIER}]
    for earlier in [*(sorted(run.iterdir()) for run in kept), results]:
        if earlier:
            archive.mkdir(mode=PRIVATE_MODE, exist_ok=True)
            number = 1 + sum(1 for _ in archive.iterdir())
            target = archive / f"{number:04d}"
            target.mkdir(mode=PRIVATE_MODE)
            for path in earlier:
                _link_or_copy(path, target / path.name)
    for path in (folder / DRAWN).glob("*.json"):
        if path.stem != released:
            (staged_confidential / DRAWN).mkdir(mode=PRIVATE_MODE, exist_ok=True)
            _link_or_copy(path, staged_confidential / DRAWN / path.name)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _swap(moves: Sequence[tuple[Path, Path]]) -> None:
    """Rename every new folder to its target, or none; delete the folders that were there."""
    done: list[tuple[Path, Path]] = []
    replaced: list[Path] = []
    with signals_delayed():
        try:
            for new, target in moves:
                if target.exists():
                    # Not inside the temporary folder: should undoing fail too, it must survive.
                    aside = target.with_name(f"{new.parent.name}{REPLACED}")
                    os.rename(target, aside)
                    done.append((aside, target))
                    replaced.append(aside)
                os.rename(new, target)
                done.append((target, new))
        except BaseException:
            for source, destination in reversed(done):
                os.rename(source, destination)
            raise
    for aside in replaced:
        shutil.rmtree(aside, ignore_errors=True)
