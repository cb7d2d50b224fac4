"""Ways to read a survey from bytes or catch the message of a bad one, searched for canaries."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from surveysynth.config.build import read_survey
from surveysynth.config.spec import Spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.survey.survey import Survey, require_variation
from tests.surveys import CANARIES, good, make_survey, spec_text


def message(frame: pd.DataFrame, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        varied(make_survey(frame, **changes))
    return checked(caught.value)


def varied(survey: Survey) -> None:
    """Refuse a survey as the mechanisms do that model records."""
    require_variation(survey.design, survey.confidential)


def checked(error: InputError, folder: Path | None = None) -> str:
    """The message, after a search for canaries; the folder of the test may be named after one."""
    text = str(error) if folder is None else str(error).replace(str(folder), "")
    for canary in CANARIES:
        assert canary not in text
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    return text


def make_spec(folder: Path, **changes: str) -> Spec:
    return parse_spec(spec_text(**changes), folder / "spec.toml")


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
