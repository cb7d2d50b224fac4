"""Surveys whose files are read: one frame in every format, and one file with wrong bytes.

A frame, its Arrow table, and the files of csv, parquet, Stata, SPSS and SAS that are written from
it are one survey, or are refused alike. A format that cannot have such a frame (its writer refuses
it, or it has no missing flags, say) is left out.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth import cli
from surveysynth.errors import InputError
from surveysynth.survey import files
from surveysynth.survey.columns import alike
from surveysynth.survey.files import open_table
from tests.survey.test_columns import KINDS, WRITERS
from tests.surveys import spec_text

N = 24
#: The relative precision of numbers of a SAS transport file, which are hexadecimal.
CLOSE = 1e-14
#: Names of a public column; not every format can have each.
NAMES = (
    "by",
    "BY",
    "by_2",
    "größe",
    "a b",
    "a.b",
    "a,b",
    'a"b',
    "region_of_the_first_interview",
    "_x",
)
REFUSALS = (
    pyreadstat.PyreadstatError, pyreadstat.ReadstatError, pa.ArrowException, ValueError,
    TypeError, OverflowError,
)  # fmt: skip
CANARY = 73194.28517
#: What is said of words for missing values alone.
WORDS = re.compile(r" A word such as NA means .*? listed in \[labels\.COLUMN\] levels\.")
#: A release of it is refused after it was read, whatever the file holds.
SPEC = spec_text(
    "FILE", survey="population_size = 30000", tables='by = ["field"]\nstatistics = ["count"]',
    synthesizer='model = "fbs"\ninference = "paper"\nchains = 2\ndraws = 20\nwarmup = 20',
    privacy='epsilon = 0.01\nm = 2\nweights = "linear"\nallow = ["shared_weights"]\nscale = 1.0',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Input:
    """A frame, the roles of its columns, and the endings of files that can have its levels."""

    frame: pd.DataFrame = dataclasses.field(repr=False)
    roles: dict[str, Any]
    suffixes: tuple[str, ...]


@st.composite
def _column(draw: st.DrawFn, levels: int) -> tuple[pd.Series, list[str], tuple[str, ...]]:
    """Cells of some levels, missing here and there; the levels; the files that can have them."""
    texts, values_of, suffixes = KINDS[kind := draw(st.sampled_from(list(KINDS)))]
    chosen = draw(st.lists(texts, min_size=2, max_size=levels, unique_by=alike))
    order = draw(st.permutations(range(N)))
    cells = [chosen[place % len(chosen)] for place in order]
    column = pd.Series(values_of(cells))
    gaps = draw(st.sets(st.integers(0, N - 1), max_size=6))
    if gaps and kind != "flags":  # pandas has no missing flag
        column[sorted(gaps)] = None
    if draw(st.booleans()) and kind == "texts":
        column = column.astype("category")
    return column, sorted(set(chosen)), suffixes


NUMBERS = (
    st.floats(1e-3, 1e9).map(lambda x: float(f"{x:.12g}")) | st.integers(1, 10**9).map(float)
    | st.sampled_from([1e-9, 1e60, 0.1 + 0.2])
)  # fmt: skip
#: What an amount or a weight must not be, most of them.
WRONG = st.sampled_from([float("nan"), float("nan"), -1.5, 0.0, float("inf")])


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    """A survey of 24 records: two columns of levels, an amount and a weight."""
    by, _, first = draw(_column(4))
    group, levels, second = draw(_column(3))
    amount, weight = (
        draw(st.lists(numbers, min_size=N, max_size=N)) for numbers in (NUMBERS, st.floats(1, 1e4))
    )
    if draw(st.integers(0, 3)) == 0:
        for cells in (amount, weight):
            for place in draw(st.sets(st.integers(0, N - 1), max_size=2)):
                cells[place] = draw(WRONG)
    name = draw(st.sampled_from(NAMES))
    frame = pd.DataFrame({name: by, "group": group, "amount": amount, "weight": weight})
    if draw(st.booleans()):
        frame["amount"] = frame["amount"].astype("Float64")
    answered = ss.Outcome("group", "categorical", levels=tuple(levels))
    roles = {
        "by": name, "weight": "weight", "population_size": 1000,
        "missing": draw(st.sampled_from(["drop", "fail"])),
        "outcomes": [ss.Outcome("amount"), answered][: draw(st.integers(1, 2))],
    }  # fmt: skip
    return Input(frame, roles, tuple(set(first) & set(second)))


def _survey(read: Any, roles: dict[str, Any]) -> tuple[Any, ...] | str:
    """All that a survey holds, or the words of its refusal."""
    try:
        survey = ss.Survey.from_frame(read, source="it", **roles)
    except InputError as error:
        # A file may say NA where another has nothing.
        return WORDS.sub("", str(error))
    return (
        survey.design.frame.astype(str).to_dict("list"), survey.design.levels,
        survey.design.dropped, survey.confidential.outcome, survey.confidential.sampling_weight,
    )  # fmt: skip


def _files(given: Input, folder: Path) -> Iterator[tuple[str, Any]]:
    yield from {"frame": given.frame, "arrow": pa.Table.from_pandas(given.frame)}.items()
    for name, write in WRITERS.items():
        path = folder / f"{name.partition('.')[0]}.{name.rpartition('.')[2]}"
        if not name.endswith(given.suffixes):
            continue
        path.unlink(missing_ok=True)
        try:
            write(given.frame, path)
        except REFUSALS:
            continue
        yield name, path


def differences(given: Input, folder: Path, seen: Counter[str]) -> list[str]:
    """What differs between the formats of one frame; ``seen`` counts what was compared."""
    expected, found = _survey(given.frame, given.roles), []
    seen["refused" if isinstance(expected, str) else "surveys"] += 1
    for name, file in _files(given, folder):
        seen[name] += 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "_survives", lambda *_: True)  # these files are sound
            try:
                read = open_table(file).read(list(given.frame)) if isinstance(file, Path) else file
            except InputError as error:
                found.append(f"{name}: {error}")
                continue
        made = _survey(read, given.roles)
        if not _same(expected, made):
            found.append(f"{name}: {made}, and the frame {expected}")
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    numbers = zip(one[3:], other[3:], strict=True)
    return one[:3] == other[:3] and all(
        np.allclose(a, b, rtol=CLOSE, atol=0, equal_nan=True) for a, b in numbers
    )


@dataclasses.dataclass(frozen=True)
class Damage:
    """A sound file's ending, and its bytes that are others: (place of 1, byte)."""

    name: str
    cut: float
    changes: tuple[tuple[float, int], ...]


SHARES = st.floats(0, 1, exclude_max=True)
damages = st.builds(
    Damage, st.sampled_from(list(WRITERS)), st.one_of(st.just(1.0), SHARES),
    st.lists(st.tuples(SHARES, st.integers(0, 255)), max_size=6).map(tuple),
)  # fmt: skip


def wrong_after(damage: Damage, folder: Path, capsys: Any, seen: Counter[str]) -> list[str]:
    """What is wrong with how the release of a damaged file ends."""
    folder = folder / "damaged"
    folder.mkdir(exist_ok=True)
    records = {"field": ["a", "b", "c"] * 20, "gender": ["f", "m"] * 30}
    amount = np.exp(np.linspace(9, 11, 60)).round(5)
    amount[20] = CANARY
    frame = pd.DataFrame({**records, "salary": amount, "weight": np.linspace(20, 60, 60)})
    path = folder / f"survey.{damage.name.rpartition('.')[2]}"
    WRITERS[damage.name](frame, path)
    content = bytearray(path.read_bytes())
    for place, byte in damage.changes:
        content[int(place * len(content))] = byte
    path.write_bytes(content[: round(damage.cut * len(content))])
    (folder / "spec.toml").write_text(SPEC.replace("FILE", path.name), encoding="utf-8")
    before, ledger = set(folder.iterdir()), folder.parent / "ledgers" / "ledger.jsonl"
    ledger.parent.mkdir(exist_ok=True)
    code = cli.main([
        "release", str(folder / "spec.toml"), "--out", str(folder / "out"),
        "--ledger", str(ledger),
    ])  # fmt: skip
    said = capsys.readouterr()
    shown = said.out + said.err
    seen[f"damaged {damage.name}"] += 1
    seen[f"exit {code}"] += 1
    problems = [f"exit {code}"] * (code not in (2, 3))
    problems += ["a traceback"] * ("Traceback" in shown or "defect" in shown)
    problems += ["a canary"] * ("73194" in shown)
    problems += ["no word"] * (not said.err.startswith("surveysynth: "))
    problems += ["written"] * (set(folder.iterdir()) != before or ledger.exists())
    path.unlink()
    return [f"{problems}: {said.err[-400:]}"] if problems else []
