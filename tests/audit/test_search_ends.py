"""What ``python -m tests.long_runs.search_ends`` found: where a search ends moves no weights in
common, also where two databases take different numbers of fits."""

import json

from tests.long_runs.search_ends import EPSILON, PAIRS, RESULTS, SEEDS, N

FACTS = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_one_record_moves_far_less_than_is_stated() -> None:
    lines = FACTS["lines"]
    assert (FACTS["n"], FACTS["epsilon"]) == (N, EPSILON)
    assert len(lines) == len(SEEDS) * len(PAIRS)
    assert max(each["ratio"] for each in lines) < 0.2
    assert max(abs(each["weights_moved"]) for each in lines) < 5e-4


def test_some_pairs_took_different_numbers_of_fits() -> None:
    assert any(one != other for one, other in (each["fits"] for each in FACTS["lines"]))
