"""Entries of ledgers for tests, by hand and by hypothesis."""

from hypothesis import strategies as st

from surveysynth.release.ledger import LedgerEntry


def entry(survey: str = "s", epsilon: float | None = 2.0, *, test: bool = False) -> LedgerEntry:
    """A run of the pseudo-posterior."""
    return LedgerEntry(survey, "spec.toml", "a", "d", "fbs", epsilon, 3, test, "0.1.0")


def strict_entry(
    protect: str = "record", unit_size: int = 1, rho: float = 0.25, survey: str = "s"
) -> LedgerEntry:
    """A run of noisy statistics."""
    return LedgerEntry(
        survey, "spec.toml", "a", "d", "fbs", 3.6, 20, False, "0.1.0",
        mechanism="noisy_statistics", rho=rho, delta=1e-6, protect=protect, unit_size=unit_size,
    )  # fmt: skip


@st.composite
def ledger_entries(draw: st.DrawFn) -> LedgerEntry:
    """Runs of either mechanism on two surveys, with any text that JSON can hold."""
    amounts = st.floats(1e-6, 1e6)
    words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    common = {
        "survey": draw(st.sampled_from(["s", "t\n\u2028"])), "spec": draw(words),
        "spec_sha256": "a", "data_sha256": "d", "model": draw(words), "m": draw(st.integers(1, 30)),
        "test": draw(st.booleans()), "version": "0.1.0", "released": draw(st.booleans()),
    }  # fmt: skip
    if draw(st.booleans()):
        return LedgerEntry(epsilon=draw(amounts | st.none()), **common)
    return LedgerEntry(
        epsilon=draw(amounts), mechanism="noisy_statistics", rho=draw(amounts),
        delta=draw(st.floats(1e-12, 0.5)), protect=draw(st.sampled_from(["record", "household"])),
        unit_size=draw(st.integers(1, 9)), **common,
    )  # fmt: skip
