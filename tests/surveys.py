"""Small surveys: as frames, as surveys, and as files with their specification.

Every record of a real survey is confidential; of these, one is planted to be searched for.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth.api.start import write_example
from surveysynth.survey.survey import Survey

#: The fixture ``make_spec`` of releases: it writes a survey file and a specification, whose path it
#: gives.
MakeSpec = Callable[..., Path]

CANARY_OUTCOME = 987654.321
CANARY_WEIGHT = 31415.9265
CANARIES = ("987654", "31415", "canary")

#: What a specification says where a test says nothing, by section.
DEFAULTS: dict[str, dict[str, str]] = {
    "survey": {"weight": '"weight"', "strata": '"field"'},
    "synthesizer": {"outcome": '"salary"'},
    "privacy": {"mechanism": '"pseudo_posterior"', "epsilon": "10.8"},
    "tables": {"by": '["field", "gender"]'},
    "labels": {},
}


#: [privacy] of a quick release by the mechanism that takes every kind of outcome.
NOISY = 'mechanism = "noisy_statistics"\nm = 10\nreplicates_per_draw = 1\n'
#: [outcomes.weight] where the size of the population is not known.
WEIGHT = "[outcomes.weight]\nrange = [1, 100000]\n"


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


def small_survey(n: int = 240, seed: int = 3) -> pd.DataFrame:
    """Three fields, two genders, log-normal salaries, informative weights."""
    rng = np.random.default_rng(seed)
    field = np.arange(n) % 3
    gender = rng.choice(["f", "m"], n)
    log_salary = 10 + 0.1 * field + 0.4 * rng.standard_normal(n)
    weight = np.exp(14 - log_salary + 0.4 * rng.standard_normal(n))
    return pd.DataFrame(
        {
            "field": np.array(["a", "b", "c"])[field],
            "gender": gender,
            "salary": np.exp(log_salary),
            "weight": weight,
            "fraction": 0.1 + 0.2 * field,
            "employed": rng.integers(0, 2, n),
        }
    )


def lonely_survey() -> pd.DataFrame:
    """A stratum with a single record."""
    frame = small_survey()
    alone = frame.iloc[[0]].assign(field="z", gender="m")
    return pd.concat([frame, alone], ignore_index=True)


def clustered_survey(seed: int = 5, spread: float = 0.3) -> pd.DataFrame:
    """Three fields of 12 schools of 1 to 40 records, which share effects on salary and weight."""
    rng = np.random.default_rng(seed)
    sizes = np.tile([1, 1, 6, 10, 14, 16, 18, 20, 24, 26, 30, 40], 3)
    school = np.repeat(np.arange(36), sizes)
    field = school // 12
    effects = rng.normal(0.0, spread, (2, 36))[:, school]
    log_salary = 10 + 0.1 * field + effects[0] + 0.3 * rng.standard_normal(school.size)
    log_weight = 4 - 0.5 * (log_salary - 10) + effects[1] + 0.3 * rng.standard_normal(school.size)
    return pd.DataFrame(
        {
            "field": np.array(["a", "b", "c"])[field],
            "gender": rng.choice(["f", "m"], school.size),
            "school": [f"{number:03d}" for number in school],
            "salary": np.exp(log_salary),
            "weight": np.exp(log_weight),
        }
    )


def make_survey(frame: pd.DataFrame | None = None, **changes: Any) -> Survey:
    """A survey of salaries by field and gender, fields as strata, with ``changes`` of it."""
    settings: dict[str, Any] = {
        "outcome": "salary",
        "weight": "weight",
        "by": ["field", "gender"],
        "strata": "field",
    }
    return Survey.from_frame(good() if frame is None else frame, **{**settings, **changes})


#: A line of a specification that leaves the spread of amounts to the package's default.
SPREAD_BY_CELL = "# spread by cell"


def spec_text(data: str = "survey.csv", **sections: str) -> str:
    """The same as a specification. The lines given for a section follow its defaults, of which
    those are left out that the lines set.

    Amounts have one covariance, which is quick; with the line ``SPREAD_BY_CELL`` they have the
    package's default."""
    lines = ["spec_version = 1"]
    chosen = sections.get("synthesizer", "")
    model = re.search(r"^\s*model\s*=\s*['\"](\w+)", chosen, re.MULTILINE)
    asked = "covariance_by" in chosen or SPREAD_BY_CELL in chosen
    keys_of_kinds = r"^\s*(kind|spikes|lower|upper|split)\s*="
    special = any(re.search(keys_of_kinds, each, re.MULTILINE) for each in sections.values())
    if not (asked or special) and (model is None or model[1] in ("fbs", "fbp")):
        sections["synthesizer"] = f"covariance_by = []\n{chosen}"
    for name, defaults in DEFAULTS.items():
        given = sections.pop(name, "")
        keys = set(re.findall(r"^\s*(\w+)\s*=", given, re.MULTILINE))
        keys |= {"epsilon"} if "rho" in keys else set()  # each tells the other
        own = {"data": f'"{data}"', **defaults} if name == "survey" else defaults
        kept = [f"{key} = {value}" for key, value in own.items() if key not in keys]
        # Given lines may end in tables of their own ([labels.field]).
        lines += [f"[{name}]", *kept, given] if kept or given else []
    assert not sections, f"no section {sorted(sections)}"
    return "\n".join(lines) + "\n"


def pseudo_example(folder: Path, n: int) -> Path:
    """Write the example of n records; its specification by the pseudo-posterior, of whose formats
    those stay that take no time."""
    path = write_example(folder, n)[1].with_name("spec_pseudo_posterior.toml")
    text = re.sub(r"^formats = \[.*?\]", 'formats = ["csv"]', path.read_text("utf-8"), flags=re.M)
    path.write_text(text, "utf-8")
    return path


def write_survey(folder: Path, frame: pd.DataFrame, text: str, data: str = "survey.csv") -> Path:
    """The survey file and ``spec.toml`` beside it."""
    folder.mkdir(exist_ok=True)
    if data.endswith(".parquet"):
        frame.to_parquet(folder / data)
    else:
        frame.to_csv(folder / data, index=False)
    path = folder / "spec.toml"
    path.write_text(text, encoding="utf-8")
    return path
