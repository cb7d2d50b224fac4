"""Functions to start with: a simulated survey, and the first specification of a survey."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.errors import InputError
from surveysynth.evaluation.studies.example import (
    DEFAULT_N,
    DEFAULT_SEED,
    simulate_survey,
    write_example,
)
from surveysynth.evaluation.studies.population import published_cells
from surveysynth.survey.declaration import given_weights_from
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.config.draft.choices import OutcomeChoice
    from surveysynth.config.draft.text import Drafted


def example(
    folder: str | Path, n: int = DEFAULT_N, seed: int = DEFAULT_SEED, *, study: bool = False
) -> tuple[Path, Path]:
    """Write a simulated survey.csv and specifications that work: ``surveysynth example``.

    ``spec.toml`` names noisy statistics, and ``spec_pseudo_posterior.toml`` the papers' mechanism.

    Parameters
    ----------
    folder
        A new or empty folder.
    n
        Number of records.
    seed
        Makes another survey of the same kind.
    study
        Also write population.csv, from which the survey was drawn.

    Returns
    -------
    tuple of Path
        The survey, and its specification by noisy statistics.

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
    """Return the simulated survey of ``surveysynth example``.

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


def survey_of(frame: "pd.DataFrame") -> Survey:
    """Return the survey of a simulated frame, with its public design."""
    return Survey.from_frame(
        frame,
        outcome="salary",
        weight="weight",
        strata="field",
        by=("field", "gender"),
        population_size=float(published_cells()["size"].sum()),
        transforms=Transform("log"),
    )


def init(
    data: str | Path,
    out: str | Path | None = None,
    *,
    outcomes: Mapping[str, Mapping[str, Any] | None],
    weight: str | None = None,
    mechanism: str,
    epsilon: float,
    public_weights: bool = False,
    weights_from: str | Sequence[str] | None = None,
    strata: str | None = None,
    psu: str | None = None,
    design_effect: float | None = None,
    by: str | Sequence[str] = (),
    population_size: float | None = None,
    overwrite: bool = False,
) -> "Drafted":
    """Write a specification for a data file, with every choice explained in comments.

    The function reads the names of all columns and the values of the by columns, and no other
    values; of a file of Stata, SPSS or SAS also labels.

    Parameters
    ----------
    data
        A csv or parquet file, or one of Stata (.dta), SPSS (.sav) or SAS (.xpt).
    out
        The file to write, spec.toml beside the data unless given.
    outcomes
        Confidential columns, each with its kind ("continuous", "semicontinuous", "count", "binary",
        "categorical") and constants from public sources: range (the lowest and the highest
        possible value, all that an amount or a count needs), spikes, levels. An amount may instead
        have transform, centre (a typical value), spread, scale, power, shift, lower, upper. Missing
        constants stay open in the file; None leaves the kind open too.
    weight
        Column of sampling weights; required.
    mechanism
        "noisy_statistics" or "pseudo_posterior".
    epsilon
        The privacy cost of the whole release.
    public_weights
        True if the weights are constants of the sample design, published unchanged.
    weights_from
        Columns that the weights were computed from besides the design, () for design weights, or
        "unknown"; None leaves it open.
    strata, psu
        Public columns of the sample design.
    design_effect
        Public factor by which the units raise variances, for models without effects of units.
    by
        Public columns that define the rows of tables.
    population_size
        The size of the population, from a frame or a published source.
    overwrite
        Replaces an existing file.

    Returns
    -------
    Drafted
        The path, and the keys that are still open.

    Raises
    ------
    InputError
        For data that cannot be read, missing columns, inconsistent choices, and a file that
        exists.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     survey, spec = ss.example(folder, n=100)
    ...     made = ss.init(
    ...         survey, spec.with_name("mine.toml"), weight="weight", by=["field", "gender"],
    ...         outcomes={"salary": {"kind": "continuous", "range": [0, 1_000_000]}},
    ...         mechanism="noisy_statistics", epsilon=3.6, population_size=100_000,
    ...     )
    ...     made.open, ss.load_spec(made.path).outcomes["salary"].range
    ((), (0.0, 1000000.0))
    """
    from surveysynth.config.draft.choices import Choices, open_data
    from surveysynth.config.draft.text import SPEC_NAME, write_draft

    path = Path(data)
    choices = Choices(
        outcomes=tuple(_outcome(name, given) for name, given in outcomes.items()),
        weight=weight,
        public_weights=public_weights,
        weights_from=given_weights_from(weights_from),
        strata=strata,
        psu=psu,
        design_effect=design_effect,
        by=(by,) if isinstance(by, str) else tuple(by),
        population_size=population_size,
        mechanism=mechanism,
        epsilon=epsilon,
    )
    if not outcomes:
        raise InputError("outcomes: expected at least one column.")
    target = path.with_name(SPEC_NAME) if out is None else Path(out)
    file = open_data(path)
    if choices.weight is None:
        raise InputError("weight: missing; name the column of sampling weights.")
    return write_draft(file, choices, target, overwrite=overwrite)


def _outcome(name: str, given: Mapping[str, Any] | None) -> "OutcomeChoice":
    from surveysynth.config.draft.choices import OutcomeChoice

    constants = dict(given or {})
    return OutcomeChoice(name, constants.pop("kind", None), constants)
