"""Surveys that the tests of releases share."""

import numpy as np
import pandas as pd


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
