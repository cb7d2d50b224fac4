"""A sound survey with planted canaries, and ways to read it or catch the message of a bad one."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.spec.build import read_survey
from surveysynth.spec.spec import Spec, parse_spec
from surveysynth.survey.survey import Survey

CANARY_OUTCOME = 987654.321
CANARY_WEIGHT = 31415.9265
CANARIES = ("987654", "31415", "canary")


def good(n: int = 240, seed: int = 3) -> pd.DataFrame:
    """A sound survey with one canary record; fields 01..04 in unequal shares, two genders."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "field": np.array(["01", "02", "03", "04"])[np.arange(n) % 4],
        "gender": np.array(["M", "F"])[(np.arange(n) // 4) % 2],
        "school": np.array(["a", "b", "c"])[(np.arange(n) // 8) % 3],
        "age": rng.integers(20, 60, n),
        "fraction": 0.1,
        "note": [f"note, {i}" for i in range(n)],
        "weight": np.exp(rng.normal(3, 0.5, n)),
        "salary": np.exp(rng.normal(10, 0.5, n)),
    })  # fmt: skip
    frame.loc[7, ["weight", "salary"]] = [CANARY_WEIGHT, CANARY_OUTCOME]
    return frame


def from_frame(frame: pd.DataFrame, **changes: Any) -> Survey:
    settings: dict[str, Any] = {
        "outcome": "salary",
        "weight": "weight",
        "by": ["field", "gender"],
        "strata": "field",
    }
    return Survey.from_frame(frame, **{**settings, **changes})


def message(frame: pd.DataFrame, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        from_frame(frame, **changes)
    return checked(caught.value)


def checked(error: InputError, folder: Path | None = None) -> str:
    """The message, after a search for canaries; the folder of the test may be named after one."""
    text = str(error) if folder is None else str(error).replace(str(folder), "")
    for canary in CANARIES:
        assert canary not in text
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    return text


def make_spec(folder: Path, data: str = "survey.csv", survey: str = "", **sections: str) -> Spec:
    return parse_spec(
        f"""
        [survey]
        data = "{data}"
        weight = "weight"
        strata = "field"
        {survey}
        [synthesizer]
        outcome = "salary"
        {sections.get("synthesizer", "")}
        [tables]
        by = ["field", "gender"]
        {sections.get("tables", "")}
        {sections.get("labels", "")}
        """,
        folder / "spec.toml",
    )


def csv_bytes(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def read_bytes(folder: Path, content: bytes, **changes: str) -> Survey:
    (folder / "survey.csv").write_bytes(content)
    return read_survey(make_spec(folder, **changes))


def file_message(folder: Path, content: bytes, **changes: str) -> str:
    with pytest.raises(InputError) as caught:
        read_bytes(folder, content, **changes)
    return checked(caught.value, folder)


def record_lines(n: int = 40) -> list[str]:
    """Header and records of a small sound csv without quoted cells."""
    return csv_bytes(good(n).drop(columns="note")).decode().splitlines()


def joined(lines: list[str], end: str = "\n") -> bytes:
    return (end.join(lines) + end).encode()
