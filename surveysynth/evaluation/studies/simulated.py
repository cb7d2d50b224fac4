"""Releases of simulated records: how large standard errors will be, and how long a release takes.

Outcomes and weights are drawn from what is declared; design, tables and settings are the survey's
own. No outcome and no weight of the survey is read, and nothing is spent. A range says nothing
about how far most values lie apart, and is stated wide: records that fill it have weights and
amounts so uneven that the sample's own standard errors hide the noise. So their spread is one that
is usual in surveys, unless it is declared or guessed.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth._support.messages import duration, listing, nearest
from surveysynth._support.types import FloatArray
from surveysynth.config.build import declared_of, model_of, read_design
from surveysynth.config.outcome_section import WEIGHT
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.statistics import LEVEL, TABLE
from surveysynth.evaluation.compare.tables import without_flags
from surveysynth.evaluation.studies.study import released, row_keys, sample_rows
from surveysynth.mechanisms.base import Declared, typical
from surveysynth.mechanisms.learned.histogram import learned_outcomes
from surveysynth.models.counts import CountModel
from surveysynth.models.units import INTRACLASS_GUESS
from surveysynth.release.folder import plan_folder, staged_folder, swap_in
from surveysynth.survey.outcome import BELOW, Outcome
from surveysynth.survey.survey import Confidential, PublicDesign, Survey
from surveysynth.survey.transforms import GUESSED_END, LearnedTransform

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.models.base import Model

TABLE_NAME = "simulated_se.csv"
WHAT = "standard errors of a simulated release"
#: Of the simulation, which protects nobody: a check says the same whenever it is run.
SEED = 0
#: Simulated surveys, of at most so many records, and columns in cells: the ratios of one vary by a
#: tenth, and a release of many takes a minute.
REPEATS, MOST_REPEATED, MOST_COLUMNS = 3, 20_000, 50
#: SDs of the logs of amounts and of weights, unless declared, guessed, or too large for a range.
AMOUNT_SD, WEIGHT_SD = 0.7, 0.5
#: SD of an amount on the scale of a transform that is neither learned nor declared.
UNDECLARED = 0.5
_RATIO = "se_over_sample"
#: Seconds that a release takes beside, for files, figures and the report on its fit.
_OF_FILES = 5.0

Guesses = Mapping[str, tuple[float, float]]
"""Two values of an amount by the name of its column, the lower first."""


@dataclass(frozen=True, eq=False)
class SimulatedRelease:
    """The standard errors of releases of simulated records at one epsilon.

    rows: labels, epsilon, and medians of ``se`` and ``se_over_sample`` of every row of every table;
    seconds: the time that the numbers of one took; refused: why one was not made, else empty;
    clipped: the share of records outside the ball, where there is one.
    """

    epsilon: float
    seconds: float
    rows: pd.DataFrame
    refused: str = ""
    clipped: float | None = None

    def verdict(self, at: str) -> str:
        """Return one sentence: the median and the middle 80% of rows; ``at``: which release."""
        if self.refused:
            return f"A release{at} would probably be refused: {self.refused}"
        means = self.rows["statistic"] == "mean"
        rows, of_means = (self.rows[means], " of means") if means.any() else (self.rows, "")
        ratio = rows[_RATIO].dropna()
        withheld = f"{int(rows['se'].isna().sum()):,} of {len(rows):,} rows{of_means}"
        if ratio.empty and not rows["se"].isna().all():
            return f"OK to release{at}."
        if ratio.empty:
            return (
                f"A release{at} would probably publish nothing{of_means}: its flags withhold "
                f"{withheld}. Use fewer cells or a larger epsilon."
            )
        low, median, high = np.quantile(ratio, [0.1, 0.5, 0.9])
        return (
            f"OK to release{at}. Expected standard errors{of_means}: {median:.1f} ({low:.1f} to "
            f"{high:.1f}) times the sample's, from simulated records."
            + (f" Flags withhold {withheld}." if rows["se"].isna().any() else "")
        )

    def lines(self) -> list[str]:
        """Return the lines of ``check`` on each statistic."""
        took = duration(self.seconds + _OF_FILES)
        if self.refused:
            took = duration(self.seconds)
            return [f"  epsilon {self.epsilon:.4g}: refused after {took}: {self.refused}"]
        cut = "" if self.clipped is None else f", {self.clipped:.1%} of the records are clipped"
        lines = [f"  epsilon {self.epsilon:.4g}, a release takes {took}{cut}:"]
        for key, own in self.rows.groupby([TABLE, "statistic", "outcome"], sort=False):
            ratio = own[_RATIO].to_numpy(dtype=np.float64)
            ratio = ratio[np.isfinite(ratio)]
            if ratio.size:
                lines.append(
                    f"    {' '.join(filter(None, map(str, key)))}: {np.median(ratio):.2f} in the "
                    f"median of {ratio.size:,} rows ({ratio.min():.2f} to {ratio.max():.2f})"
                )
        return lines


def simulated_releases(
    spec: "Spec",
    design: PublicDesign,
    epsilons: Sequence[float] = (),
    guesses: Guesses | None = None,
) -> list[SimulatedRelease]:
    """Release simulated records at the epsilon of a specification and at others, in any order.

    Raises ``InputError`` for an epsilon that is not above zero, and a guess that names no learned
    column or is outside its range.
    """
    if not all(0.0 < each < np.inf for each in epsilons):
        raise InputError(f"--epsilon: expected numbers above zero, got {list(epsilons)}.")
    _check_guesses(learned_outcomes(design.modelled), guesses or {})
    rng, model = np.random.default_rng(SEED), model_of(spec).of(design)
    cells = len(design.frame[list(design.by)].drop_duplicates()) if design.by else 1
    quick = design.n <= MOST_REPEATED and cells * len(design.modelled) <= MOST_COLUMNS
    surveys = [
        Survey(design, _values(spec, design, model, guesses or {}, rng))
        # Where records are weighted down a release is many fits.
        for _ in range(REPEATS if quick and spec.privacy.adds_noise else 1)
    ]
    own = spec.for_records(design.n)
    unflagged = without_flags(own)
    samples = [sample_rows(unflagged, each)[[*row_keys(own), "se"]] for each in surveys]
    found = [_at(own, own.privacy.stated_epsilon, surveys, samples)]
    for each in sorted(set(epsilons)):
        changed: dict[str, Any] = {"epsilon": each}
        if own.privacy.rho_given is not None:
            changed["rho"] = None
        other = own.model_copy(update={"privacy": own.privacy.model_copy(update=changed)})
        found.append(_at(other, each, surveys, samples))
    return found


def simulated_report(
    spec: "Spec",
    epsilons: Sequence[float],
    guesses: Guesses | None,
    out: str | Path | None,
    *,
    overwrite: bool,
) -> tuple[list[str], list[str], bool]:
    """Release simulated records; return the verdict at each epsilon, details, and a refusal.

    The last is True if the specification's own epsilon is refused.
    ``out``: a folder for the standard errors of all rows, which are public. Raises ``InputError``
    as ``simulated_releases``, for public columns that cannot be read and a folder that exists.
    """
    from surveysynth.release.writers.csv import write_records

    own, target = (TABLE_NAME,), None
    if out is not None:
        target = plan_folder(Path(out), overwrite=overwrite, own=own, marker=own[0], what=WHAT)
    found = simulated_releases(spec, read_design(spec), epsilons, guesses)
    verdicts = [each.verdict(f" at epsilon {each.epsilon:.4g}" if epsilons else "")
                for each in found]  # fmt: skip
    lines = [
        "Simulated: outcomes and weights are drawn from what is declared, with all categories "
        "equally frequent and no effect of public columns; none of the survey's are read. Logs of "
        f"amounts and weights without a declared spread or a guess have SDs of {AMOUNT_SD:g} and "
        f"{WEIGHT_SD:g}, or less where their range is narrow.",
        "Standard errors over those of the simulated sample itself:",
        *(line for each in found for line in each.lines()),
    ]
    if target is None:
        return verdicts, lines, bool(found[0].refused)
    with staged_folder(target, WHAT) as folder:
        rows = pd.concat([each.rows for each in found], ignore_index=True)
        needless = [name for name in (TABLE, LEVEL) if not rows[name].any()]
        write_records(rows.drop(columns=needless), folder / TABLE_NAME, "csv")
        swap_in(folder, target)
    lines.append(f"All rows: {target / TABLE_NAME}. It is public.")
    return verdicts, lines, bool(found[0].refused)


def _at(
    spec: "Spec", epsilon: float, surveys: Sequence[Survey], samples: Sequence[pd.DataFrame]
) -> SimulatedRelease:
    keys, parts, clipped, started = row_keys(spec), [], [], time.monotonic()
    for number, (survey, sample) in enumerate(zip(surveys, samples, strict=True)):
        try:
            own, realised = released(spec, survey, np.random.SeedSequence([SEED, number]))
        except RefusedError as error:
            seconds = (time.monotonic() - started) / (number + 1)
            return SimulatedRelease(epsilon, seconds, sample[:0], str(error))
        rows = own[[*keys, "se"]].merge(
            sample, on=keys, suffixes=("", "_of_sample"), validate="one_to_one"
        )
        parts.append(rows.assign(**{_RATIO: rows["se"] / rows["se_of_sample"].replace(0, np.nan)}))
        clipped += [each for key, each in realised.items() if key == "clipped_records"]
    seconds = (time.monotonic() - started) / len(surveys)
    rows = pd.concat(parts).groupby(keys, sort=False)[["se", _RATIO]].median().reset_index()
    rows.insert(len(keys), "epsilon", epsilon)
    share = float(np.mean(clipped)) / surveys[0].design.n if clipped else None
    return SimulatedRelease(epsilon, seconds, rows, clipped=share)


def _check_guesses(columns: Sequence[Outcome], guesses: Guesses) -> None:
    known = {each.name: each for each in columns}
    for name, (low, high) in guesses.items():
        if name not in known:
            names = tuple(known)
            raise InputError(
                f"--guess: {name!r} has no learned transform.{nearest(name, names)} Learned: "
                f"{listing(names) if names else 'none'}."
            )
        transform, split = known[name].learned, known[name].split
        assert transform is not None  # these are learned
        least = transform.low if split is None else split
        if not least <= low < high <= transform.high:
            raise InputError(
                f"--guess: expected two values of {name!r} from {least:,.10g} to "
                f"{transform.high:,.10g}, the lower first, got {low:,.10g} and {high:,.10g}."
            )


def _values(
    spec: "Spec", design: PublicDesign, model: "Model", guesses: Guesses,
    rng: np.random.Generator,
) -> Confidential:
    """Draw outcomes (n, p) and weights (n,) from what is declared.

    Amounts fall where weights rise, as in samples in proportion to size; units hold a twentieth of
    the variance, as in many household surveys."""
    declared = declared_of(spec)
    of_weight = _unit_normals(design, rng)
    if isinstance(model, CountModel):
        theta = model.prior_guess(design, UNDECLARED)
        outcome = model.simulate(theta, design, rng, "sample").outcomes(design)
    else:
        pull = -0.5 / max(1, sum(each.is_amount for each in design.outcomes)) ** 0.5
        columns = []
        for each in design.outcomes:
            unit = pull * of_weight + (1.0 - pull**2) ** 0.5 * _unit_normals(design, rng)
            category = rng.integers(each.categories, size=design.n)
            z, guess = unit, guesses.get(each.name)
            for side in each.sides:  # center and spread on the scale of the transform
                if guess is not None and side != BELOW:
                    low, high = each.forward(np.array(guess), side).tolist()
                    center, spread = 0.5 * (low + high), 0.5 * (high - low)
                elif each.learned is not None:
                    low, high = each.learned.of_side(each.split, side).grid
                    center, spread = 0.0, min(1.0, AMOUNT_SD * 2.0 * GUESSED_END / (high - low))
                else:
                    center, spread = typical(each, side, *declared) or (0.0, UNDECLARED)
                z = np.where(category == side, center + spread * unit, z)
            values = each.values(category, z)
            if each.lower is not None or each.upper is not None:
                values = np.asarray(np.clip(values, each.lower, each.upper), dtype=np.float64)
            columns.append(values)
        outcome = np.stack(columns, axis=1)
    if design.weight_name is None:
        return Confidential(outcome, None)
    weight = _weights(design, of_weight, declared[0].get(WEIGHT), guesses)
    return Confidential(outcome, weight)


def _unit_normals(design: PublicDesign, rng: np.random.Generator) -> FloatArray:
    """Return standard normal numbers (n,), correlated within PSUs."""
    own = rng.standard_normal(design.n)
    if design.psu is None:
        return own
    effects = rng.standard_normal(int(design.psu.max()) + 1)[design.psu]
    return np.asarray((1 - INTRACLASS_GUESS) ** 0.5 * own + INTRACLASS_GUESS**0.5 * effects)


def _weights(
    design: PublicDesign, unit: FloatArray, declared: Declared | None, guesses: Guesses
) -> FloatArray:
    """Return sampling weights (n,) from about standard normals (n,)."""
    given, guess = design.weight_transform, guesses.get(str(design.weight_name))
    if isinstance(given, LearnedTransform):
        low, high = np.log(np.array(guess or (given.low, given.high)))
        step = 0.5 * (high - low) if guess else min((high - low) / (2 * GUESSED_END), WEIGHT_SD)
        return np.clip(_exp(0.5 * (low + high) + step * unit), given.low, given.high)
    center = None if declared is None else declared.center
    spread = None if declared is None else declared.spread
    if center is None:
        center = float(np.log((design.population_size or design.n) / design.n))
    return _exp(center + (spread or WEIGHT_SD) * unit)


def _exp(logs: FloatArray) -> FloatArray:
    return np.asarray(np.exp(logs), dtype=np.float64)
