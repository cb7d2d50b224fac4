"""Functions to start with: a simulated survey in files or memory, and a first specification."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.config.draft import (
    SPEC_NAME,
    Choices,
    Drafted,
    OutcomeChoice,
    open_data,
    write_draft,
)
from surveysynth.errors import InputError
from surveysynth.evaluation.studies.population import (
    Population,
    SamplingDesign,
    allocate,
    published_cells,
    simulate_population,
)
from surveysynth.survey.declaration import given_weights_from
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

if TYPE_CHECKING:
    import pandas as pd


DEFAULT_N = 1000
DEFAULT_SEED = 2022

_SPEC = """\
# A specification for surveysynth: what the survey is, how it is synthesized, what is published.
# Run:  surveysynth check {name}
#       surveysynth release {name} --out out
spec_version = 1

[survey]
data = "survey.csv"            # relative to this file
weight = "weight"              # sampling weight: confidential, it is synthesized too
strata = "field"               # public: the sample was drawn by field
population_size = {size}       # public: from a frame or a published source
weights_from = []              # the weights were not made from confidential answers

[synthesizer]
model = "fbs"                  # fbs or fbp
outcome = "salary"             # confidential

{privacy}
[tables]
by = ["field", "gender"]       # all cells and all margins are made
statistics = ["count", "mean"]
title = "Survey of doctorate holders"
universe = "doctorate holders" # titles: Mean annual salary of doctorate holders, ..
place = "United States, simulated"
number = 1                     # of the first table
source = "Simulated survey; population sizes and means as published for a simulation study."
formats = ["csv", "html", "xlsx", "latex", "markdown", "svg", "png"] # svg, png, pdf: figures
flags = "nchs"                 # or statcan, thresholds, none: mark or withhold unreliable numbers

[labels.field]
title = "Field"
levels = {{ {levels} }}    # code = "label", in the order of the tables

[labels.gender]
title = "Gender"
levels = {{ "Male" = "Male", "Female" = "Female" }}
margin = "All"                 # the name of the row over both

[labels.salary]
title = "Annual salary"
unit = "US dollars"
"""

_NOISY = """\
[outcomes.salary]              # public: last year's publication, say
center = 100000                # a typical value
spread = 0.5                   # a typical standard deviation of its logarithm

[privacy]
mechanism = "noisy_statistics" # exact noise, a proof; spec_pseudo_posterior.toml has the other
epsilon = 3.6                  # for the whole release, at delta = 1e-6
"""
_PSEUDO = """\
[privacy]
mechanism = "pseudo_posterior" # the papers' mechanism; spec.toml has the other
epsilon = 10.8                 # for the whole release of m draws; asymptotic
m = 3
"""
#: The specifications by file name, and what each has on privacy.
_PRIVACY = {"spec.toml": _NOISY, "spec_pseudo_posterior.toml": _PSEUDO}

def simulate_survey(n: int, rng: np.random.Generator) -> "pd.DataFrame":
    """Simulate a sample of n persons (methods 7): field, gender, salary (dollars), weight.

    Raises ``InputError`` if n is too small for two records in each of the eight fields.
    """
    persons = simulate_population(published_cells(), rng)
    sizes = np.asarray(persons["field"].value_counts(), dtype=np.float64)
    allocate("proportional", sizes, n)  # refuses too few records, in plain words
    population = Population(persons, ("salary",), ("gender",), "field", "size")
    sample = SamplingDesign(n=n).draw(population, rng)
    sample["salary"] = sample["salary"].round(2)
    sample["weight"] = sample["weight"].round(6)
    return sample[["field", "gender", "salary", "weight"]]


def write_example(
    folder: Path, n: int = DEFAULT_N, seed: int = DEFAULT_SEED, *, study: bool = False
) -> tuple[Path, Path]:
    """Write the files of ``surveysynth.example``, all or none."""
    if seed < 0:
        raise InputError(f"the seed must be 0 or a positive whole number, got {seed}.")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a new or empty folder.")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"the folder {folder} is not empty; name a new or empty one.")
    survey = simulate_survey(n, np.random.default_rng(seed))
    try:
        _write(folder.resolve(), survey, seed if study else None)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}.") from None
    return folder / "survey.csv", folder / "spec.toml"


def _write(folder: Path, survey: "pd.DataFrame", population_seed: int | None) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        staged = Path(name) / "example"
        staged.mkdir()
        survey.to_csv(staged / "survey.csv", index=False, lineterminator="\n")
        cells = published_cells()
        fields = dict.fromkeys(cells["field"])
        levels = ", ".join(f'"{code}" = "Field {code}"' for code in fields)
        for file, privacy in _PRIVACY.items():
            size = int(cells["size"].sum())
            text = _SPEC.format(name=file, size=size, levels=levels, privacy=privacy)
            (staged / file).write_text(text, encoding="utf-8")
        if population_seed is not None:
            population = simulate_population(cells, np.random.default_rng(population_seed))
            population = population.round({"salary": 2, "size": 2})
            population.to_csv(staged / "population.csv", index=False, lineterminator="\n")
        if folder.exists():
            folder.rmdir()
        shutil.move(staged, folder)


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
) -> Drafted:
    """Write a specification for a data file, with every choice explained in comments.

    The function reads the names of all columns and the values of the by columns, and no other
    values; from a Stata, SPSS or SAS file also labels.

    Parameters
    ----------
    data
        A csv or parquet file, or one of Stata (.dta), SPSS (.sav) or SAS (.xpt).
    out
        The file to write. Default: spec.toml in the folder of the data.
    outcomes
        Confidential columns, each with its kind ("continuous", "semicontinuous", "count", "binary",
        "categorical") and constants from public sources: range (the lowest and the highest
        possible value, all that an amount or a count needs), spikes, levels. An amount may instead
        have transform (a kind, or a mapping with its scale, power or shift), center (a typical
        value), spread and bounds. Missing
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


def _outcome(name: str, given: Mapping[str, Any] | None) -> OutcomeChoice:
    constants = dict(given or {})
    return OutcomeChoice(name, constants.pop("kind", None), constants)
