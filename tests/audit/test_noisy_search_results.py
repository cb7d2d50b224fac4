"""What ``python -m tests.long_runs.noisy_search`` found: noise of a sampler alone stays within what
is stated, and a posterior of many modes does not, for which mixtures are refused."""

import json

from tests.audit.posterior import UNCHANGED
from tests.long_runs.noisy_search import CHANGES, RESULTS, SEEDS, SETTINGS, words

LINES = json.loads(RESULTS.read_text(encoding="utf-8"))["lines"]


def ratios(model: str) -> list[float]:
    """Of the lines that were not refused."""
    return [each["ratio"] for each in LINES if each["model"] == model and each["ratio"] is not None]


def test_every_setting_is_there() -> None:
    wanted = [(each.n, words(change)) for each in SETTINGS for change in CHANGES[each.part]]
    assert sorted((each["n"], each["change"]) for each in LINES) == sorted(len(SEEDS) * wanted)


def test_noise_of_a_sampler_moves_less_than_is_stated() -> None:
    single = ratios("fbs")
    assert len(single) == 16
    assert max(single) < 0.6  # as the statement says
    # With a small epsilon the search does not end in time.
    small = [each for each in LINES if each["epsilon"] == 4.0]
    assert [each["verdict"] for each in small] == ["refused"] * 4


def test_many_modes_move_far_more() -> None:
    assert max(ratios("normal_mixture")) > 10.0  # as the refusal says


def test_a_replaced_record_is_not_seen_beside_the_noise_of_levels_in_units() -> None:
    """And the search, whose cap has room for the noise, ends soon."""
    lines = [each for each in LINES if each["model"] == "general fbs"]
    for n in (1000, 4000):
        same, replaced = (
            [
                each["ratio"]
                for each in lines
                if each["n"] == n and (each["change"] == UNCHANGED) is wanted
            ]
            for wanted in (True, False)
        )
        assert (len(same), len(replaced)) == (2, 4)
        assert max(replaced) < 1.1
        assert max(replaced) < min(same)
        assert max(same) < 2.1  # as the statement says
    assert max(fits for each in lines for fits in each["fits"]) <= 13
