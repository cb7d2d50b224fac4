"""Large tables against R's svyby and svy, as ``python -m tests.long_runs.large_tables`` found."""

import json

import pytest

from tests.long_runs.large_tables import RESULTS, SIZES

FOUND = {each["records"]: each for each in json.loads(RESULTS.read_text(encoding="utf-8"))["sizes"]}


@pytest.mark.parametrize("n", SIZES)
def test_estimates_and_standard_errors_are_those_of_other_programs(n: int) -> None:
    found = FOUND[n]
    programs = {name: found[name] for name in ("R survey", "svy") if name in found}
    assert set(programs) == ({"R survey"} if SIZES[n] else {"R survey", "svy"})
    for each in programs.values():
        assert each["cells"] >= min(SIZES[n] or 6_000, 6_000)
        assert each["estimate"] < 1e-8
        assert each["se"] < 1e-8
        assert each["ratio"] > 10
