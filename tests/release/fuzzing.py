"""Specifications and survey files with something wrong in them, made from a seed.

Each case is a folder with a specification and a survey in which canaries are planted: outcomes,
weights and, in some, levels and the first line. Every mutation is one that a person or a program
makes: lines lost or swapped, cells moved into the next column, other separators and encodings, keys
misspelt, values of another type, files cut off.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

#: What no message, file or folder may show, in whatever place it stood.
CANARY_OUTCOME, CANARY_WEIGHT, CANARY_LEVEL = 73194.28517, 13729.46185, "kanarienvogel"
CANARIES = ("73194", "13729", "kanarienvogel", "KANARIENVOGEL")

SPEC = """spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
strata = "field"
population_size = 30000
[synthesizer]
model = "fbs"
outcome = "salary"
inference = "paper"
chains = 2
draws = 20
warmup = 20
[privacy]
mechanism = "pseudo_posterior"
epsilon = 0.01
m = 2
weights = "linear"
allow = ["shared_weights"]
scale = 1.0
[tables]
by = ["field", "gender"]
statistics = ["count", "mean"]
[labels.field]
levels = {a = "A", b = "B", c = "C"}
[labels.gender]
levels = {f = "Women", m = "Men"}
"""

#: Values of another type or out of range, as TOML.
VALUES = (
    "-1", "0", "1", "1e400", "nan", "inf", '""', '" "', "true", "[]", "{}", '["a", "a"]', '"nan"',
    '"salary"', '"weight"', '"field"', '["salary"]', "1979-05-27", '"../survey.csv"', '"\\u0000"',
    "'C(field)'", "'field * gender'", "'log(gender)'", "'salary + field'", "'field +'", "3.7",
    "[1, 2]", '{a = 1}', '"fbp"', '"normal_mixture"', '"noisy_statistics"', '"cmdstan"', '"none"',
    "99999999999999999999", '"count"', '["proportion"]', '"own.toml"', '"statcan"', '"asinh"',
)  # fmt: skip
KEYS = (
    "data", "weight", "strata", "psu", "fpc", "population_size", "missing", "public_columns",
    "outcome", "predictors", "epsilon", "m",
    "risk", "allow",
    "by", "statistics", "weights", "lonely_psu", "engine", "priors",
    "covariance_by", "mechanism", "protect", "rho", "flags", "formats", "level", "design_effect",
)  # fmt: skip

Lines = list[str]


@dataclass(frozen=True)
class Case:
    """Where it lies, and the names of what was done to it."""

    spec: Path
    done: tuple[str, ...]


def survey() -> pd.DataFrame:
    """Sixty sound records, three of them with canaries."""
    rng = np.random.default_rng(5)
    n = 60
    frame = pd.DataFrame({
        "field": np.array(["a", "b", "c"])[np.arange(n) % 3],
        "gender": np.array(["f", "m"])[(np.arange(n) // 3) % 2],
        "age": rng.integers(20, 60, n),
        "salary": np.exp(rng.normal(10, 0.5, n)).round(5),
        "weight": np.exp(rng.normal(6, 0.5, n)).round(5),
    })  # fmt: skip
    frame.loc[[0, 20], "salary"] = CANARY_OUTCOME
    frame.loc[[0, 41], "weight"] = CANARY_WEIGHT
    return frame


# --- what happens to a file of records -------------------------------------------------------


def _without_header(r: random.Random, lines: Lines) -> Lines:
    return lines[1:]


def _shuffled(r: random.Random, lines: Lines) -> Lines:
    return r.sample(lines, len(lines))


def _moved(r: random.Random, lines: Lines) -> Lines:
    """Cells of a record change places, so that a value stands in a column of levels."""
    at = min(r.choice([1, 21, 42, r.randrange(len(lines))]), len(lines) - 1)
    cells = lines[at].split(",")
    return [*lines[:at], ",".join(r.sample(cells, len(cells))), *lines[at + 1 :]]


def _lost(r: random.Random, lines: Lines) -> Lines:
    at = r.randrange(len(lines))
    cells = lines[at].split(",")
    del cells[r.randrange(len(cells))]
    return [*lines[:at], ",".join(cells), *lines[at + 1 :]]


def _foreign(r: random.Random, lines: Lines) -> Lines:
    """A cell becomes something else."""
    at = r.randrange(len(lines))
    cells = lines[at].split(",")
    cells[r.randrange(len(cells))] = r.choice([
        CANARY_LEVEL, f"{CANARY_OUTCOME}", f"-{CANARY_OUTCOME}", f"{CANARY_WEIGHT} EUR", "", " ",
        "inf", "nan", "1e999", '"', f'"{CANARY_LEVEL}', f'"{CANARY_OUTCOME}\n"', "0", "-0", "x,y",
        f"{CANARY_OUTCOME}_0", "All", "\x00", "\ufeff", "[[1]]",
    ])  # fmt: skip
    return [*lines[:at], ",".join(cells), *lines[at + 1 :]]


def _separated(r: random.Random, lines: Lines) -> Lines:
    other = r.choice(";\t|:")
    return [line.replace(",", other) for line in lines]


def _comma(r: random.Random, lines: Lines) -> Lines:
    """Decimal commas."""
    return [line.replace(".", ",") for line in lines]


def _doubled(r: random.Random, lines: Lines) -> Lines:
    names = lines[0].split(",")
    names[r.randrange(len(names))] = r.choice([*names, CANARY_LEVEL, f"{CANARY_OUTCOME}"])
    return [",".join(names), *lines[1:]]


def _constant(r: random.Random, lines: Lines) -> Lines:
    """Few records, or all of them the same."""
    return [lines[0], *([lines[1]] * r.choice([1, 2, 30]))]


def _title(r: random.Random, lines: Lines) -> Lines:
    """Lines of words above the header."""
    return [f"Survey of {CANARY_LEVEL}, {CANARY_OUTCOME}", *lines]


FILES: tuple[Callable[[random.Random, Lines], Lines], ...] = (
    _without_header, _shuffled, _moved, _lost, _foreign, _separated, _comma, _doubled, _constant,
    _title,
)  # fmt: skip


def _bytes(r: random.Random, content: bytes) -> bytes:
    """Damage below the level of text."""
    kind = r.randrange(6)
    if kind == 0:
        return content[: r.randrange(len(content))]
    if kind == 1:
        at = r.randrange(len(content))
        return content[:at] + bytes([r.randrange(256)]) + content[at + 1 :]
    if kind == 2:
        return content.decode().encode("utf-16")
    if kind == 3:
        return content.replace(b"\n", b"\r")
    if kind == 4:
        return b"\xef\xbb\xbf" + content.replace(b"a,", "ä,".encode("latin-1"))
    return b"PAR1" + content


# --- what happens to a specification ---------------------------------------------------------


def _misspelt(r: random.Random, lines: Lines) -> Lines:
    at = r.randrange(len(lines))
    line = lines[at]
    if len(line) < 2:
        return lines
    i = r.randrange(len(line) - 1)
    swapped = line[:i] + line[i + 1] + line[i] + line[i + 2 :]
    return [*lines[:at], swapped, *lines[at + 1 :]]


def _other_value(r: random.Random, lines: Lines) -> Lines:
    at = r.choice([i for i, line in enumerate(lines) if "=" in line])
    key = lines[at].partition("=")[0]
    return [*lines[:at], f"{key}= {r.choice(VALUES)}", *lines[at + 1 :]]


def _further_key(r: random.Random, lines: Lines) -> Lines:
    at = r.choice([i for i, line in enumerate(lines) if line.startswith("[")])
    return [*lines[: at + 1], f"{r.choice(KEYS)} = {r.choice(VALUES)}", *lines[at + 1 :]]


def _left_out(r: random.Random, lines: Lines) -> Lines:
    at = r.randrange(len(lines))
    return lines[:at] + lines[at + 1 :]


def _other_column(r: random.Random, lines: Lines) -> Lines:
    old, new = r.sample(["salary", "weight", "field", "gender", "age", "aeg", "wieght"], 2)
    return [line.replace(f'"{old}"', f'"{new}"') for line in lines]


def _without_levels(r: random.Random, lines: Lines) -> Lines:
    return [line for line in lines if not line.startswith(("levels", "[labels"))]


SPECS: tuple[Callable[[random.Random, Lines], Lines], ...] = (
    _misspelt, _other_value, _further_key, _left_out, _other_column, _without_levels,
)  # fmt: skip


def make_case(seed: int, folder: Path) -> Case:
    """The case of a seed: one to three things wrong with the specification, the file or both."""
    r = random.Random(seed)
    spec, records = SPEC.splitlines(), survey().to_csv(index=False).splitlines()
    done = []
    for _ in range(r.choice([1, 1, 2, 3])):
        mutate = r.choice([*SPECS, *FILES])
        done.append(mutate.__name__.strip("_"))
        if mutate in FILES:
            records = mutate(r, records)
        else:
            spec = mutate(r, spec)
    content = "\n".join([*records, ""]).encode("utf-8", "surrogateescape")
    if r.random() < 0.12 and content:
        content, done = _bytes(r, content), [*done, "bytes"]
    (folder / "survey.csv").write_bytes(content)
    path = folder / "spec.toml"
    path.write_text("\n".join([*spec, ""]), encoding="utf-8")
    return Case(path, tuple(done))
