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
