"""Truth: epsilons added by hand (basic composition)."""

import json
from dataclasses import replace
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


def _strict(protect: str = "record", unit_size: int = 1, rho: float = 0.25) -> LedgerEntry:
    return replace(
        _entry(epsilon=3.6), rho=rho, delta=1e-6, protect=protect, unit_size=unit_size
    )


def test_units_of_protection_are_kept_apart() -> None:
    records = summarise([_strict(), _strict()], "d")
    assert (records.rho, records.unit_rho, records.whole_units) == (0.5, {}, None)
    units = summarise([_strict("household", 4), _strict("household", 4)], "d")
    assert (units.rho, units.unit_rho, units.whole_units) == (0.5, {"household": 0.5}, "household")
    (sentence,) = units.sentences()
    assert "so far for units of 'household': 0.5 in 2 runs" in sentence
    mixed = summarise([_strict(), _strict("household", 4, 0.5), _strict("firm", 9)], "d")
    # Each run protects single records at its rho at least; no unit is protected by all.
    assert (mixed.rho, mixed.whole_units) == (1.0, None)
    assert mixed.unit_rho == {"firm": 0.25, "household": 0.5}
    first, second = mixed.sentences()
    assert "so far: 1 in 3 runs" in first
    assert "single records" in second
    assert "(rho by column: 'firm' 0.25, 'household' 0.5)" in second
    assert "no total for units" in second


def test_entries_from_before_units_protect_records(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    old = json.loads(_strict("household", 4).line())
    assert (old.pop("protect"), old.pop("unit_size")) == ("household", 4)
    path.write_text(json.dumps(old) + "\n" + _strict("household", 4).line(), encoding="utf-8")
    first, second = read_ledger(path)
    assert (first.protect, first.unit_size) == ("record", 1)
    assert summarise([first, second], "d").whole_units is None
    assert "protect" not in _entry().line()
