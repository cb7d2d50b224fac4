"""The first specification of a survey: what ``surveysynth init`` does, as a function."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surveysynth.errors import InputError
from surveysynth.spec.draft.choices import Choices, OutcomeChoice
from surveysynth.spec.draft.columns import open_data
from surveysynth.spec.draft.write import SPEC_NAME, Drafted, write_draft


def init(
    data: str | Path,
    out: str | Path | None = None,
    *,
    outcomes: Mapping[str, Mapping[str, Any] | None],
    weight: str,
    mechanism: str,
    epsilon: float,
    public_weights: bool = False,
    strata: str | None = None,
    psu: str | None = None,
    design_effect: float | None = None,
    by: str | Sequence[str] = (),
    population_size: float | None = None,
    overwrite: bool = False,
) -> Drafted:
    """Write a specification for a data file, with every choice explained in comments.

    Of the data, the names of all columns and the values of the by columns are looked at, and no
    others; a parquet file, or one of Stata, SPSS or SAS, also tells the types of its columns, and
    these their labels.

    Parameters
    ----------
    data
        A csv or parquet file, or one of Stata (.dta), SPSS (.sav) or SAS (.xpt).
    out
        The file to write, spec.toml beside the data unless given.
    outcomes
        Confidential columns; of each its kind ("continuous", "semicontinuous", "binary",
        "categorical", "count") and constants from public sources: centre (a typical value), range
        (two values between which about two thirds of the population lie), spread, transform,
        scale, power, shift, spikes, lower, upper, levels. What is left out stays open in the
        file; None leaves the kind open too.
    weight
        Column of sampling weights.
    mechanism
        "pseudo_posterior" or "noisy_statistics".
    epsilon
        What the whole release may cost.
    public_weights
        Whether the weights are constants of the sample design, published as they are.
    strata, psu
        Public columns of the sample design.
    design_effect
        Public factor by which the units raise variances, for models without effects of units.
    by
        Public columns to make tables by.
    population_size
        From a frame or a published source.
    overwrite
        Replaces a file that is there.

    Returns
    -------
    Drafted
        The path, and the keys that are still to be filled in.

    Raises
    ------
    InputError
        For data that cannot be read, columns that are not there, choices that do not belong
        together, and a file that exists.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     survey, spec = ss.example(folder, n=100)
    ...     made = ss.init(
    ...         survey, spec.with_name("mine.toml"), weight="weight", by=["field", "gender"],
    ...         outcomes={"salary": {"kind": "continuous", "centre": 90_000}},
    ...         mechanism="pseudo_posterior", epsilon=10.8, population_size=100_000,
    ...     )
    ...     made.open, ss.load_spec(made.path).outcomes["salary"].scale
    ((), 9000.0)
    """
    path = Path(data)
    choices = Choices(
        outcomes=tuple(_outcome(name, said) for name, said in outcomes.items()),
        weight=weight,
        public_weights=public_weights,
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
    return write_draft(open_data(path), choices, target, overwrite=overwrite)


def _outcome(name: str, said: Mapping[str, Any] | None) -> OutcomeChoice:
    constants = dict(said or {})
    return OutcomeChoice(name, constants.pop("kind", None), constants)
