"""Stopping chains that cannot converge.

Truth: autoregressive chains of known speed, run to the end; the R-hat of a release of four outcomes
at epsilon 3 that had not converged after 64 rounds a draw.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.noisy_statistics.posterior import patience
from surveysynth.mechanisms.noisy_statistics.posterior.draws import LOCATION_THINNINGS
from surveysynth.mechanisms.noisy_statistics.posterior.patience import Patience
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN
from surveysynth.sampling.convergence import MAX_R_HAT, NotConvergedError, r_hat

#: Of four outcomes of four kinds, 3,000 records, after 2, 4, .. rounds a draw.
OF_MANY = LOCATION_THINNINGS[1:]
MEASURED = (3.07, 2.53, 2.44, 1.93, 1.56, 1.66)


def failed(value: float) -> NotConvergedError:
    refusal = NotConvergedError("Not converged.")
    refusal.r_hat = value
    return refusal


def chains(speed: float, start: float, rng: np.random.Generator) -> Iterator[float]:
    """R-hat by stage of chains that forget in ``speed`` rounds, from starts so far apart."""
    state = start * rng.standard_normal(NOISY_PLAN.chains)
    for thinning in LOCATION_THINNINGS:
        kept = np.exp(-thinning / speed)
        draws = []
        for _ in range(NOISY_PLAN.draws):
            state = kept * state + np.sqrt(1 - kept**2) * rng.standard_normal(state.size)
            draws.append(state)
        yield float(r_hat(np.array(draws).T[..., None])[0])


def stopped_at(
    r_hats: tuple[float, ...], thinnings: tuple[int, ...] = LOCATION_THINNINGS
) -> int | None:
    """The rounds a draw after which no further stage is tried."""
    waiting = Patience(thinnings, NOISY_PLAN, None)
    for thinning, value in zip(thinnings, r_hats, strict=True):
        if value <= MAX_R_HAT:
            return None
        if waiting.refusal(failed(value), thinning, 100) is not None:
            return thinning
    return None


def test_a_release_that_did_not_converge_is_stopped_early() -> None:
    """At an eighth of the rounds that it ran before."""
    assert stopped_at(MEASURED, OF_MANY) == 8


def test_only_chains_that_would_not_converge_are_stopped() -> None:
    rng, stopped, hopeless, spared = np.random.default_rng(3), 0, 0, 0
    for speed in np.geomspace(20, 100_000, 60):
        for start in (0.3, 1.0, 5.0, 30.0):
            found = tuple(chains(float(speed), start, rng))
            at = stopped_at(found)
            converges = min(found) <= MAX_R_HAT
            assert not (converges and at is not None), (speed, start, found)
            hopeless += not converges
            stopped += at is not None
            spared += converges
    assert spared >= 40
    assert stopped >= 0.6 * hopeless  # a rule that never stops is none
    assert all(stopped_at(tuple(chains(1e5, start, rng))) == 8 for start in (1.0, 5.0))


def test_a_rule_without_leeway_stops_chains_that_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: R-hat that is expected to fall no further."""
    monkeypatch.setattr(patience, "expected_excess", lambda excess, doublings: excess[-1])
    rng = np.random.default_rng(3)
    found = [tuple(chains(float(speed), 5.0, rng)) for speed in np.geomspace(20, 500, 20)]
    assert any(min(each) <= MAX_R_HAT and stopped_at(each) is not None for each in found)


def test_what_is_expected_is_said_at_the_start_and_a_remedy_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a planted clock of half a second a round."""
    now, told = 100.0, list[str]()
    monkeypatch.setattr(patience.time, "monotonic", lambda: now)
    waiting = Patience(OF_MANY, NOISY_PLAN, told.append)
    rounds, refusal = 2, None
    now += 1.0
    waiting.begin(rounds)
    rounds, now = 80, 140.0
    for thinning, value in zip(OF_MANY, MEASURED, strict=True):
        waiting.say(thinning, rounds, NOISY_PLAN.draws)
        rounds += thinning * NOISY_PLAN.draws
        now = 100.0 + rounds / 2
        refusal = waiting.refusal(failed(value), thinning, rounds)
        if refusal is not None:
            break
    # 40 + 60 draws of 2 rounds; with 60 draws of 124 rounds more.
    assert told[0] == (
        "posterior under the noise, about 2 minutes; up to about 64 minutes if chains mix slowly"
    )
    assert told[1].endswith("4 rounds a draw, about 2 minutes, since R-hat is 3.07")
    assert isinstance(refusal, RefusedError)
    # (2.44^2 - 1) / 8 is 6.04 times 1.05^2 - 1: seven times 60 draws.
    for words in ("R-hat is 2.44 after 8 rounds", "1.05 is required", "draws = 420",
                  "fewer outcomes"):  # fmt: skip
        assert words in str(refusal)


def test_short_work_is_not_announced() -> None:
    told = list[str]()
    Patience(LOCATION_THINNINGS, NOISY_PLAN, told.append).begin(10**9)
    assert not told
