"""The mechanism of noisy statistics is total: whatever valid outcomes and weights are, everything
up to the noise is the same but the noisy numbers (strict 1.4). Truth: an ordinary survey's run.

By the in-memory API and by the command line, from a file; what follows the noise is cut off.
"""

import json
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth.cli import main
from surveysynth.errors import ConfidentialWarning, InputError, RefusedError
from surveysynth.mechanisms.noisy_statistics.posterior import draws as posterior
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics as mechanism
from tests.surveys import small_survey, spec_text, write_survey

N = 24
FRAME = small_survey(N)
POSITIVE = (5e-324, 1e-310, 1e-300, 1.0, 22_000.0, 1e300, 1.7e308)
SIGNED = (*POSITIVE, 0.0, *(-value for value in POSITIVE))
#: Transforms, the values that they take, and a typical one.
TRANSFORMS = {
    "log": (ss.Transform("log"), POSITIVE),
    "asinh": (ss.Transform("asinh", scale=4.0), SIGNED),
    "identity": (ss.Transform("identity", scale=2.0), SIGNED),
}
OUTCOMES = {"salary": {"center": 22_000.0, "spread": 0.5}}
PRIVACY = {"mechanism": "noisy_statistics", "epsilon": 10.8}


class Cut(Exception):
    """Ends a run after the noise, with what it had by then."""


def columns(values: tuple[float, ...], least: float) -> st.SearchStrategy[list[float]]:
    """Of one survey: all equal, one record far from the rest, or anything."""
    one = st.one_of(st.sampled_from(values), st.floats(least, 1.7e308, exclude_min=least == 0.0))
    far = st.tuples(one, one).map(lambda pair: [pair[0]] + [pair[1]] * (N - 1))
    return st.one_of(one.map(lambda value: [value] * N), far, st.lists(one, min_size=N, max_size=N))


def databases(kind: str) -> st.SearchStrategy[tuple[list[float], list[float]]]:
    values = TRANSFORMS[kind][1]
    least = 0.0 if kind == "log" else -1.7e308
    return st.tuples(columns(values, least), columns((*POSITIVE, 0.5), 0.0))


def run_in_memory(frame: pd.DataFrame, kind: str) -> dict[str, Any]:
    """What is known once the noise is drawn: all constants, the shapes of the noisy numbers, stages
    that were told; no warning."""
    found: dict[str, Any] = {"stages": []}

    def cut(*arguments: Any, **_: Any) -> None:
        statistics = arguments[2].to_dict()
        first = statistics["first"]
        early = [*map(np.array, first.pop("cross")), np.array(first.pop("centres"))]
        assert all(np.isfinite(each).all() for each in early)
        found["first"] = [each.shape for each in early]
        for name in ("cross", "squares", "counts"):
            values = np.array(statistics.pop(name))
            assert np.isfinite(values).all()
            found[name] = values.shape
        found["public"] = statistics
        raise Cut

    with warnings.catch_warnings(), mock.patch.object(posterior, "posterior_draws", cut):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConfidentialWarning)  # for who runs it, and for nobody else
        survey = ss.Survey.from_frame(
            frame, outcome="salary", weight="weight", by=["field", "gender"], strata="field",
            population_size=30_000, transforms=TRANSFORMS[kind][0],
            predictors="field + gender",
        )  # fmt: skip
        found["survey"] = repr(survey)
        with pytest.raises(Cut):
            ss.tables(
                survey, sections={"privacy": PRIVACY, "outcomes": OUTCOMES},
                progress=found["stages"].append,
            )  # fmt: skip
    return found


def run_command(frame: pd.DataFrame, kind: str) -> tuple[int, str, list[str]]:
    """Exit code, what is printed, and the files that are there."""
    transform = TRANSFORMS[kind][0]
    scale = "" if kind == "log" else f", scale = {transform.scale}"
    text = spec_text(
        survey="population_size = 30000",
        synthesizer='predictors = "field + gender"',
        privacy='mechanism = "noisy_statistics"',
        labels="[outcomes.salary]\ncenter = 22000\nspread = 0.5\n"
        f'transform = {{ kind = "{kind}"{scale} }}',
    )
    planted = RefusedError("Planted.")
    told: list[str] = []
    with (
        tempfile.TemporaryDirectory() as name,
        warnings.catch_warnings(),
        mock.patch.object(posterior, "posterior_draws", side_effect=planted),
        mock.patch("sys.stdout") as out, mock.patch("sys.stderr") as err,
    ):  # fmt: skip
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConfidentialWarning)
        err.isatty.return_value = False
        folder = Path(name)
        spec = write_survey(folder / "in", frame, text)
        ledger = str(folder / "ledger.jsonl")
        code = main(["release", str(spec), "--out", str(folder / "out"), "--ledger", ledger])
        for stream in (out, err):
            told += [call.args[0] for call in stream.write.call_args_list]
        files = sorted(path.name for path in (folder / "out").rglob("*") if path.suffix != ".json")
        (kept,) = (folder / "out").rglob("*.json")
        shapes = json.loads(kept.read_text())["statistics"]
        files.append(str(np.array(shapes["cross"]).shape))
        lines = "".join(map(str, told)).replace(name, "FOLDER").splitlines()
        # A confidential line may differ: it is on the screen of the producer alone.
        return code, "\n".join(line for line in lines if "CONFIDENTIAL: " not in line), files


def frame_of(outcome: list[float], weight: list[float]) -> pd.DataFrame:
    return FRAME.assign(salary=outcome, weight=weight)


QUIET = [HealthCheck.too_slow, HealthCheck.large_base_example]


#: Asinh takes what identity takes and brings it nearer.
FARTHEST = pytest.mark.parametrize("kind", ["log", "identity"])


@FARTHEST
def test_every_valid_survey_goes_the_same_way(kind: str) -> None:
    usual = run_in_memory(FRAME, kind)
    assert usual["stages"] == ["noisy statistics", "posterior under the noise"]

    @settings(max_examples=25, deadline=None, suppress_health_check=QUIET)
    @given(databases(kind))
    @example(([1.0] * N, [1.0] * N))
    @example(([1e300, *[1e-300] * (N - 1)], [1e-300, 1e300] * (N // 2)))
    @example((list(FRAME["field"].map({"a": 1.0, "b": 2.0, "c": 3.0})), [5e-324] * N))
    def check(database: tuple[list[float], list[float]]) -> None:
        assert run_in_memory(frame_of(*database), kind) == usual

    check()


@FARTHEST
def test_the_command_says_the_same_of_every_valid_survey(kind: str) -> None:
    usual = run_command(FRAME, kind)
    code, told, files = usual
    assert code == 3
    assert "Planted." in told
    assert "ledger.jsonl" in files

    @settings(max_examples=6, deadline=None, suppress_health_check=QUIET)
    @given(databases(kind))
    @example(([1e300, *[1e-300] * (N - 1)], [1e-300, 1e300] * (N // 2)))
    def check(database: tuple[list[float], list[float]]) -> None:
        assert run_command(frame_of(*database), kind) == usual

    check()


INVALID = {
    "nan": ("salary", np.nan, "log", "blank"),
    "infinite": ("salary", np.inf, "identity", "infinite"),
    "minus infinite": ("salary", -np.inf, "asinh", "infinite"),
    "outside": ("salary", -71.625, "log", "does not exist"),
    "zero": ("salary", 0.0, "log", "does not exist"),
    "no weight": ("weight", np.nan, "log", "blank"),
    "weight of zero": ("weight", 0.0, "asinh", "value of zero"),
    "negative weight": ("weight", -71.625, "identity", "negative"),
    "infinite weight": ("weight", np.inf, "log", "infinite"),
}


@cache
def message_of_one_wrong_value(column: str, value: float, kind: str) -> str:
    plain = FRAME.copy()
    plain.loc[0, column] = value
    with pytest.raises(InputError) as usual:
        run_in_memory(plain, kind)
    return str(usual.value)


@pytest.mark.parametrize(("column", "value", "kind", "words"), INVALID.values(), ids=list(INVALID))
@settings(max_examples=8, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_an_invalid_value_is_bad_input_among_any_others(
    column: str, value: float, kind: str, words: str, data: st.DataObject
) -> None:
    outcome, weight = data.draw(databases(kind))
    frame = frame_of(outcome, weight)
    frame.loc[data.draw(st.integers(0, N - 1)), column] = value
    with mock.patch.object(mechanism, "release_statistics") as noise:
        with pytest.raises(InputError) as caught:
            run_in_memory(frame, kind)
        assert not noise.called
    told = str(caught.value)
    assert words in told
    assert "1 record" in told
    assert f"'{column}'" in told
    assert "71.625" not in told
    # One message, whatever the other values are.
    assert told == message_of_one_wrong_value(column, value, kind)


def test_a_survey_tells_nothing_of_its_values_by_being_there() -> None:
    """A constant outcome makes a survey, which the mechanism that models records refuses itself."""
    roles: dict[str, Any] = {
        "outcome": "salary", "weight": "weight", "by": ["field"], "population_size": 30_000,
    }  # fmt: skip
    make: Callable[..., ss.Survey] = ss.Survey.from_frame
    flat, usual = make(FRAME.assign(salary=1.0), **roles), make(FRAME, **roles)
    assert repr(flat) == repr(usual)
    sections = {
        "privacy": {"mechanism": "pseudo_posterior", "epsilon": 10.8, "allow": ["small_strata"]}
    }
    with pytest.raises(InputError, match="the survey: outcome 'salary' is constant"):
        ss.tables(flat, sections=sections)
    determined = make(FRAME.assign(weight=2.0), **roles)
    with pytest.raises(InputError, match="the survey: weight 'weight' is"):
        ss.tables(determined, sections=sections)


def test_a_mechanism_that_stops_or_warns_is_seen() -> None:
    """The comparison above tells of a refusal, a warning and another shape by what values are."""
    usual, release = run_in_memory(FRAME, "log"), mechanism.release_statistics
    far = frame_of([1e300, *[1.0] * (N - 1)], [1.0] * N)

    def stops(model: Any, design: Any, confidential: Any, *more: Any) -> Any:
        if confidential.outcome.max() > 1e200:
            raise RefusedError("Too far.")
        return release(model, design, confidential, *more)

    def warns(model: Any, design: Any, confidential: Any, *more: Any) -> Any:
        (confidential.outcome * 1e10).sum()
        return release(model, design, confidential, *more)

    def tells(model: Any, design: Any, confidential: Any, *more: Any) -> Any:
        made = release(model, design, confidential, *more)
        object.__setattr__(made, "radius", float(confidential.outcome.max()))
        return made

    for wrong, error in ((stops, RefusedError), (warns, RuntimeWarning)):
        with mock.patch.object(mechanism, "release_statistics", wrong), pytest.raises(error):
            run_in_memory(far, "log")
    with mock.patch.object(mechanism, "release_statistics", tells):
        assert run_in_memory(far, "log") != usual
