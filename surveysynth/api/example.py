"""A simulated survey to try things on, on disk or in memory."""

from pathlib import Path

import numpy as np
import pandas as pd

from surveysynth.evaluation.studies.example import (
    DEFAULT_N,
    DEFAULT_SEED,
    simulate_survey,
    write_example,
)
from surveysynth.evaluation.studies.population import published_cells
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform


def example(
    folder: str | Path, n: int = DEFAULT_N, seed: int = DEFAULT_SEED, *, study: bool = False
) -> tuple[Path, Path]:
    """Write a simulated survey.csv and a spec.toml that works: ``surveysynth example``.

    Parameters
    ----------
    folder
        A new or empty one.
    n
        Number of records.
    seed
        Makes another survey of the same kind.
    study
        Also population.csv, from which the survey was drawn, and study.toml.

    Returns
    -------
    tuple of Path
        The survey and its specification.

    Raises
    ------
    InputError
        For a folder that is not empty or cannot be written, and too few records.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     survey, spec = ss.example(folder, n=100)
    ...     spec.name, len(survey.read_text().splitlines())
    ('spec.toml', 101)
    """
    return write_example(Path(folder), n, seed, study=study)


def example_survey(n: int = DEFAULT_N, seed: int = DEFAULT_SEED) -> Survey:
    """A simulated survey to try things on, that of ``surveysynth example``.

    Parameters
    ----------
    n
        Number of records.
    seed
        Makes another survey of the same kind.

    Returns
    -------
    Survey
        Salaries by field and gender, with weights, stratified by field.

    Raises
    ------
    InputError
        For fewer than 16 records.

    References
    ----------
    Methods 7.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.example_survey(n=200).design.n
    200
    """
    return survey_of(simulate_survey(n, np.random.default_rng(seed)))


def survey_of(frame: pd.DataFrame) -> Survey:
    """A simulated frame with what is public of its design."""
    return Survey.from_frame(
        frame,
        outcome="salary",
        weight="weight",
        strata="field",
        by=("field", "gender"),
        population_size=published_cells().size,
        transforms=Transform("log"),
        refuse_degenerate=False,  # for either mechanism
    )
