"""The text of a ledger. Truth: what was written, and that nothing else reads back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.release.ledger import LedgerEntry, merge, parse_ledger, read_ledger, text_of
from tests.release.folder.ledger_entries import entry, ledger_entries, strict_entry


@given(st.lists(ledger_entries(), max_size=5))
def test_entries_read_back(entries: list[LedgerEntry]) -> None:
    text = text_of(entries)
    assert text.count("\n") == len(entries)
    assert parse_ledger(text.encode(), "x") == list(dict.fromkeys(entries))


def test_ledgers_merge_each_run_once(tmp_path: Path) -> None:
    entries = [entry(), entry(epsilon=None)]
    path = tmp_path / "ledger.jsonl"
    path.write_text(text_of(entries), encoding="utf-8")
    assert read_ledger(path) == entries
    assert read_ledger(tmp_path / "none.jsonl") == []
    later = replace(entry(), date="2999-01-01T00:00:00+00:00")
    assert merge([later], entries, entries)[-1] == later
    assert len(merge(entries, entries)) == 2


CONTENT = text_of([entry(), strict_entry("household", 4), entry(epsilon=None)]).encode()


@given(st.integers(0, len(CONTENT) - 1), st.integers(0, 255))
def test_no_byte_changes_unseen(position: int, value: int) -> None:
    changed = CONTENT[:position] + bytes([value]) + CONTENT[position + 1 :]
    try:
        read = parse_ledger(changed, "x")
    except InputError:
        return
    # Only what means the same: the blank after a colon as another one.
    assert read == parse_ledger(CONTENT, "x")


@given(st.integers(1, len(CONTENT)))
def test_a_ledger_that_is_cut_off_is_never_read_as_a_whole_line_less(removed: int) -> None:
    left = CONTENT[: len(CONTENT) - removed]
    if left and not left.endswith(b"\n"):
        with pytest.raises(InputError, match="last line of the ledger x is cut off"):
            parse_ledger(left, "x")
    else:  # whole lines were removed, which no line can tell
        assert text_of(parse_ledger(left, "x")).encode() == left


@given(st.binary(max_size=60))
def test_other_bytes_are_an_error_with_their_line(garbage: bytes) -> None:
    if not garbage.strip(b"\n"):
        garbage = b"\n"
    restore = r"line 2 of the ledger x .* restore the file from a backup|last line of the ledger x"
    with pytest.raises(InputError, match=restore):
        parse_ledger(entry().line().encode() + garbage, "x")


def test_one_run_is_not_two_different_ones() -> None:
    first = entry()
    assert parse_ledger(text_of([first, first]).encode(), "x") == [first]
    with pytest.raises(InputError, match="line 2"):
        parse_ledger(text_of([first, replace(first, epsilon=1.0)]).encode(), "x")
    other = first.line().replace(f'"epsilon": {first.epsilon}', '"epsilon": 1.5')
    with pytest.raises(InputError, match="line 1"):  # another epsilon under the same check
        parse_ledger(other.encode(), "x")
    assert other != first.line()


@pytest.mark.parametrize(
    "values",
    [
        {"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": float("nan")}, {"m": 0},
        {"rho": 0.5}, {"delta": 1e-6}, {"rho": 0.5, "delta": 1e-6},
        {"mechanism": "noisy_statistics"}, {"mechanism": "magic"},
        {"mechanism": "noisy_statistics", "rho": 0.5, "delta": 1e-6, "epsilon": None},
    ],
)  # fmt: skip
def test_no_entry_has_values_that_no_run_has(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="LedgerEntry"):
        replace(entry(), **values)
    record = {**json.loads(entry().line()), **values}
    with pytest.raises(InputError):
        parse_ledger(json.dumps(record).encode() + b"\n", "x")
