"""Truth: epsilons added by hand (basic composition)."""

from pathlib import Path

import pytest

from surveysynth.errors import InputError
from surveysynth.release.folder.ledger import LedgerEntry, merge, read_ledger, summarise


def _entry(data: str = "d", epsilon: float | None = 2.0, *, test: bool = False) -> LedgerEntry:
    return LedgerEntry("spec.toml", "s", data, "fbs", epsilon, 3, test, "0.1.0")


def test_epsilons_on_one_data_file_add_up() -> None:
    entries = [_entry(), _entry(epsilon=0.5), _entry("other", 9.0), _entry(test=True)]
    summary = summarise(entries, "d")
    assert (summary.epsilon, summary.runs, summary.tests, summary.other_data) == (2.5, 2, 1, 1)
    told = " ".join(summary.sentences())
    assert "2.5 in 2 runs" in told
    assert "1 run with a stated seed not counted" in told
    assert "1 run on other data files" in told


def test_a_run_without_protection_has_no_total() -> None:
    summary = summarise([_entry(), _entry(epsilon=None)], "d")
    assert summary.unprotected == 1
    assert "no total" in summary.sentences()[0]


def test_entries_read_back_and_merge_once(tmp_path: Path) -> None:
    entries = [_entry(), _entry(epsilon=None)]
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(entry.line() for entry in entries), encoding="utf-8")
    assert read_ledger(path) == entries
    assert read_ledger(tmp_path / "none.jsonl") == []
    assert merge(entries, entries, [new := _entry()])[-1] == new
    assert len(merge(entries, entries)) == 2


@pytest.mark.parametrize("line", ["not json", "[1]", '{"spec": "x"}', '{"epsilon": "a"}'])
def test_a_damaged_ledger_is_an_error_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(_entry().line() + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2 of the ledger"):
        read_ledger(path)
