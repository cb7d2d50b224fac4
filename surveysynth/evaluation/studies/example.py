"""The files of ``surveysynth example``: a simulated survey, and specifications that work."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surveysynth.errors import InputError
from surveysynth.evaluation.studies.designs import SamplingDesign, proportional_allocation
from surveysynth.evaluation.studies.population import (
    Population,
    published_cells,
    simulate_population,
)

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_N = 1000
DEFAULT_SEED = 2022

_SPEC = """\
# A specification for surveysynth: what the survey is, how it is synthesised, what is published.
# Run:  surveysynth check {name}
#       surveysynth release {name} --out out
spec_version = 1

[survey]
data = "survey.csv"            # relative to this file
weight = "weight"              # sampling weight: confidential, it is synthesised too
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
place = "United States"
period = "simulated"
number = 1                     # of the first table
source = "Simulated survey; population sizes and means as published for a simulation study."
formats = ["csv", "html", "xlsx", "latex", "markdown"]
figures = ["svg", "png"]       # also pdf: estimates with their intervals
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
centre = 100000                # a typical value
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
    proportional_allocation(sizes, n)  # refuses too few records, in plain words
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
