"""What a ledger adds up to, and budgets. Truth: sums by hand in decimal numbers, Bun and Steinke's
composition of rho converted once, and sums of shuffled ledgers."""

import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.mechanisms.noisy_statistics.accounting import epsilon_of, rho_of
from surveysynth.release.ledger import LedgerEntry, Limit, summarize
from tests.release.folder.ledger_entries import entry, ledger_entries, strict_entry


def test_epsilons_on_one_survey_add_up() -> None:
    entries = [entry(), entry(epsilon=0.5), entry("other", 9.0), entry(test=True)]
    summary = summarize(entries, "s")
    assert (summary.epsilon, summary.runs, summary.tests, summary.other_surveys) == (2.5, 2, 1, 1)
    told = str(summary)
    assert "spent on survey 's' so far: 2.5 in 2 runs" in told
    assert "1 run with a stated seed not counted" in told
    assert "1 run on surveys of other ids" in told


def test_a_run_without_protection_has_no_total() -> None:
    summary = summarize([entry(), entry(epsilon=None)], "s")
    assert summary.unprotected == 1
    assert "no total" in summary.sentences()[0]


def test_units_of_protection_are_kept_apart() -> None:
    records = summarize([strict_entry(), strict_entry()], "s")
    assert (records.rho, records.unit_rho, records.whole_units) == (0.5, {}, None)
    units = summarize([strict_entry("household", 4), strict_entry("household", 4)], "s")
    assert (units.rho, units.unit_rho, units.whole_units) == (0.5, {"household": 0.5}, "household")
    (sentence,) = units.sentences()
    assert "so far for units of 'household': 0.5 in 2 runs" in sentence
    mixed = summarize(
        [strict_entry(), strict_entry("household", 4, 0.5), strict_entry("firm", 9)], "s"
    )
    # Each run protects single records at its rho at least; no unit is protected by all.
    assert (mixed.rho, mixed.whole_units) == (1.0, None)
    assert mixed.unit_rho == {"firm": 0.25, "household": 0.5}
    first, second = mixed.sentences()
    assert "so far: 1 in 3 runs" in first
    assert "single records" in second
    assert "(rho by column: 'firm' 0.25, 'household' 0.5)" in second
    assert "no total for units" in second


@settings(max_examples=40)
@given(st.lists(ledger_entries(), max_size=8), st.randoms(use_true_random=False))
def test_totals_do_not_depend_on_the_order(
    entries: list[LedgerEntry], shuffler: random.Random
) -> None:
    shuffled = list(entries)
    shuffler.shuffle(shuffled)
    assert summarize(shuffled, "s") == summarize(entries, "s")
    limit, asked = Limit(50.0), strict_entry()
    assert limit.why_not(shuffled, asked) == limit.why_not(entries, asked)


@settings(max_examples=40)
@given(st.lists(ledger_entries(), max_size=8))
def test_totals_by_mechanism_are_sums_by_hand(entries: list[LedgerEntry]) -> None:
    summary = summarize(entries, "s")
    counted = [e for e in entries if e.survey == "s" and e.released and not e.test]
    epsilons = [e.epsilon for e in counted if e.rho is None and e.epsilon is not None]
    rhos = [e.rho for e in counted if e.rho is not None]
    assert summary.epsilon == float(sum(Decimal(repr(each)) for each in epsilons))
    assert summary.rho == float(sum(Decimal(repr(each)) for each in rhos))
    assert (summary.runs, summary.strict_runs) == (len(counted) - len(rhos), len(rhos))


def allowed(limit: Limit, before: Sequence[LedgerEntry], asked: LedgerEntry) -> bool:
    return limit.why_not(before, asked) is None


def test_a_budget_of_asymptotic_epsilons() -> None:
    # 10.8 + 10.8 + 10.8 is 32.4 in decimal numbers, and more in binary ones.
    spent = [entry(epsilon=10.8), entry(epsilon=10.8)]
    assert allowed(Limit(32.4), spent, entry(epsilon=10.8))
    why = Limit(32.3).why_not(spent, entry(epsilon=10.8))
    assert why == (
        "total epsilon so far 21.6 in 2 runs, asked 10.8, together 32.4, budget 32.3"
    )
    not_counted = [
        entry("other", 99.0), entry(epsilon=99.0, test=True),
        replace(entry(epsilon=99.0), released=False), strict_entry(rho=99.0),
    ]  # fmt: skip
    assert allowed(Limit(32.4), [*spent, *not_counted], entry(epsilon=10.8))
    why = Limit(99.0).why_not([entry(epsilon=None)], entry(epsilon=1.0))
    assert why is not None
    assert "without protection" in why


def test_a_budget_of_noisy_statistics_is_of_all_rho_converted_once() -> None:
    rho = rho_of(10.8, 1e-6)
    asked = strict_entry(rho=rho)
    assert allowed(Limit(10.8), [], asked)
    assert not allowed(Limit(10.7), [], asked)
    both = epsilon_of(2 * rho, 1e-6)
    assert both < 2 * 10.8  # adding converted epsilons would cost more
    assert allowed(Limit(both + 1e-6), [asked], asked)
    why = Limit(both - 1e-6).why_not([asked], asked)
    assert why is not None
    for words in (f"so far {rho:.6g} in 1 run", f"epsilon {both:.6g}", "delta 1e-06"):
        assert words in why
    assert allowed(Limit(1.0, in_rho=True), [strict_entry()] * 3, strict_entry())
    assert not allowed(Limit(1.0, in_rho=True), [strict_entry()] * 4, strict_entry())
    # Asymptotic epsilons are another currency.
    assert allowed(Limit(10.8), [entry(epsilon=99.0), entry(epsilon=None)], asked)


def test_a_budget_of_units_knows_runs_of_these_alone() -> None:
    limit, household = Limit(1.0, in_rho=True), strict_entry("household", 4)
    assert allowed(limit, [household], household)
    why = limit.why_not([household, strict_entry()], household)
    assert why is not None
    assert "no total" in why
    # What protects a unit protects its records at no larger rho.
    assert allowed(limit, [household, household], strict_entry())
    assert not allowed(limit, [household] * 4, strict_entry())


@pytest.mark.parametrize("asked", [entry(), strict_entry()])
def test_what_follows_a_total_is_not_less(asked: LedgerEntry) -> None:
    """A budget that refuses a run refuses it after one more, too."""
    limit = Limit(5.0)
    answers = [allowed(limit, [asked] * count, asked) for count in range(60)]
    assert answers[0]
    assert not answers[-1]
    assert answers == sorted(answers, reverse=True)
