"""From local to global: Delta over simulated databases, against n (methods 7; [R] App. D).

A bound is found on one database. The guarantee is called asymptotic since bounds of databases of n
records contract onto one value as n grows; this study shows where they do. Every database is drawn
anew, and Delta is the largest alpha_i |log-likelihood| over its records and draws, under rules for
alpha that are fixed beforehand and look for no target:

    unweighted   alpha = 1
    linear       LW of [R] Alg. 2 with scale 1 and shift 0
    capped       alpha_i = min(1, c / f_i), f_i of the unweighted fit: one step towards the fixed
                 point, which itself has Delta = c on every database

Delta here is of simulated databases, never of confidential ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.evaluation.studies.population import published_cells, simulate_population
from surveysynth.mechanisms.pseudo_posterior.risk import RiskData, capped
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.release import figure_style as style
from surveysynth.release.figure_style import new_figure, violin
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform
from tests.long_runs.samples import sample_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from surveysynth.models.base import Model

SIZES = (500, 1000, 5000, 20000)
SCHEMES = ("unweighted", "linear", "capped")
#: Without a target: what the rule gives stands.
_FREE = 1e12
_BATCH = 25
_DATA, _FITS = 0, 1

Draw = Callable[[int, int, int], Survey]
"""Called with a size n, a seed and the number of a database: one database of n records."""


@dataclass(frozen=True)
class Source:
    """Where databases come from, the synthesizer that fits them, and the cap c of its weights."""

    name: str
    model: str
    cap: float
    draw: Draw


def _poisson(n: int, seed: int, number: int) -> Survey:
    return _counts(_generator(seed, n, number).poisson(100, n))


def _mixture(n: int, seed: int, number: int) -> Survey:
    rng = _generator(seed, n, number)
    phi = np.where(rng.random(n) < 0.2, 5.0, 20.0)
    return _counts(rng.negative_binomial(phi, phi / (phi + 100.0)))


def _counts(y: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Survey:
    frame = pd.DataFrame({"y": y})
    return Survey.from_frame(frame, outcome="y", transforms=Transform("identity"))


def _sample(n: int, seed: int, number: int) -> Survey:
    """A sample of the published design (methods 7), with the same columns of X at every n."""
    return sample_of(_population(seed), n, seed, number)


@lru_cache(maxsize=1)
def _population(seed: int) -> pd.DataFrame:
    return simulate_population(published_cells(), _generator(seed, 0, 0))


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_DATA, *key)))


#: [R] App. D and the survey synthesizers; the caps are the bounds that [R] and [T] report.
SOURCES = (
    Source("Poisson(100)", "poisson", 3.5, _poisson),
    Source("0.2 NB(100, 5) + 0.8 NB(100, 20)", "negative_binomial", 6.0, _mixture),
    Source("survey, FBS", "fbs", 1.8, _sample),
    Source("survey, FBP", "fbp", 1.8, _sample),
)


def contraction(
    source: Source,
    sizes: Sequence[int] = SIZES,
    *,
    databases: int = 100,
    seed: int = 0,
    plan: SamplingPlan | None = None,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Delta of every database: columns source, n, scheme, database, delta, least.

    least: the smallest f_i of the unweighted fit, which bounds Delta under linear weights from
    below. Databases whose fit has not converged are left out. Raises ``InputError`` for fewer than
    two databases.
    """
    if databases < 2:
        raise InputError(f"a spread needs at least 2 databases, got {databases}.")
    say = progress or (lambda line: None)
    parts = []
    for n in sizes:
        for first in range(0, databases, _BATCH):
            numbers = range(first, min(first + _BATCH, databases))
            parts.append(_batch(source, n, numbers, seed, plan or SamplingPlan()))
        say(f"{source.name}: n = {n:,}")
    return pd.concat(parts, ignore_index=True)


def _batch(
    source: Source, n: int, numbers: Sequence[int], seed: int, plan: SamplingPlan
) -> pd.DataFrame:
    from surveysynth.mechanisms.pseudo_posterior.fit import Database
    from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
    from surveysynth.models import get_model

    found = []
    surveys = [source.draw(n, seed, number) for number in numbers]
    model: Model = get_model(source.model).of(surveys[0].design)
    data = [
        Database(model.records(each.design, each.confidential), n, each.confidential.outcome)
        for each in surveys
    ]
    free = MechanismSettings(epsilon=_FREE, m=1, plan=plan, weights="linear", scale=1.0)
    rules = {"linear": free, "capped": replace(free, risk=Capped(source.cap))}
    for scheme, settings in rules.items():
        # The same random numbers under both rules.
        fits = run_batch(model, data, settings, _generator(seed, _FITS, n, numbers[0]))
        for number, fit in zip(numbers, fits, strict=True):
            if isinstance(fit, tuple):
                unweighted = fit[1].unweighted_lipschitz_by_record
                least = float(unweighted.min())
                if scheme == "linear":
                    found.append(("unweighted", number, float(unweighted.max()), least))
                found.append((scheme, number, float(fit[1].lipschitz_by_record.max()), least))
    frame = pd.DataFrame(found, columns=["scheme", "database", "delta", "least"])
    return frame.assign(source=source.name, n=n)[
        ["source", "n", "scheme", "database", "delta", "least"]
    ]


@dataclass(frozen=True)
class Capped:
    """A risk measure whose linear weights with scale 1 are min(1, c / f_i)."""

    cap: float
    name: str = "capped"
    pattern: tuple[str, ...] = ()
    words: str = "one less its cap over its largest absolute log-likelihood"

    @property
    def settings(self) -> dict[str, Any]:
        """The cap c."""
        return {"cap": self.cap}

    def risks(self, data: RiskData) -> FloatArray:
        """1 - min(1, c / f_i), (n,)."""
        return 1.0 - capped(data.lipschitz, self.cap)


def summarise_contraction(deltas: pd.DataFrame) -> pd.DataFrame:
    """One row a source, scheme and n: databases, mean, sd with its Monte Carlo error sd_mcse, least
    and largest Delta, and sd_ratio, the SD over that at the smallest n.

    A contraction at the rate n^(-1/2) has sd_ratio sqrt(n_0 / n).
    """
    rows = []
    for key, group in deltas.groupby(["source", "scheme", "n"], sort=False):
        delta = group["delta"].to_numpy(dtype=np.float64)
        sd, error = sd_with_error(delta)
        rows.append(
            {
                **dict(zip(("source", "scheme", "n"), key, strict=True)),
                "databases": delta.size,
                "mean": delta.mean(),
                "sd": sd,
                "sd_mcse": error,
                "least": delta.min(),
                "largest": delta.max(),
            }
        )
    frame = pd.DataFrame(rows).sort_values(["source", "scheme", "n"], kind="stable")
    first = frame.groupby(["source", "scheme"])["sd"].transform("first")
    return frame.assign(sd_ratio=frame["sd"] / first).reset_index(drop=True)


def sd_with_error(values: FloatArray) -> tuple[float, float]:
    """The standard deviation and its standard error, from the fourth moment."""
    centred = values - values.mean()
    variance = float(centred @ centred) / (values.size - 1)
    spread = float(np.mean(centred**4)) - variance**2 * (values.size - 3) / (values.size - 1)
    sd = float(np.sqrt(variance))
    return sd, float(np.sqrt(max(spread, 0.0) / values.size) / (2.0 * sd)) if sd else 0.0


def contraction_figure(deltas: pd.DataFrame) -> "Figure":
    """Delta of every database by n and rule, a row a source ; its SD
    against n on the right, with two Monte Carlo standard errors and the rate n^(-1/2)."""
    summary = summarise_contraction(deltas)
    sources, sizes = list(dict.fromkeys(deltas["source"])), sorted(set(deltas["n"]))
    numbers = sorted(set(summary["databases"]))
    told = " to ".join(f"{each}" for each in dict.fromkeys((numbers[0], numbers[-1])))
    mark = f"Delta of simulated databases, {told} for each n"
    figure = new_figure(12.6, 0.8 + 2.7 * len(sources), mark, style.FAINT)
    panels = figure.subplots(len(sources), 4, squeeze=False)
    for row, source in zip(panels, sources, strict=True):
        for panel, scheme in zip(row, SCHEMES, strict=False):
            part = deltas[(deltas["source"] == source) & (deltas["scheme"] == scheme)]
            for place, n in enumerate(sizes):
                values = part.loc[part["n"] == n, "delta"].to_numpy(dtype=np.float64)
                violin(panel, place, values, _SCHEME_COLORS[scheme], log=False)
            panel.set_yticks(range(len(sizes)), [f"n = {n:,}" for n in sizes])
            panel.set_ylim(len(sizes) - 0.4, -0.6)
            panel.set_title(f"{source}\n{scheme}" if scheme == SCHEMES[0] else f"\n{scheme}")
            panel.set_xlabel("Delta")
        _sd_against_n(row[-1], summary[summary["source"] == source])
    panels[0, -1].legend(fontsize=7.5, frameon=False)
    return figure


_SCHEME_COLORS = {"unweighted": style.FAINT, "linear": "#D55E00", "capped": "#0072B2"}


def _sd_against_n(panel: "Axes", summary: pd.DataFrame) -> None:
    for scheme, color in _SCHEME_COLORS.items():
        part = summary[summary["scheme"] == scheme]
        n, sd = part["n"].to_numpy(dtype=np.float64), part["sd"].to_numpy(dtype=np.float64)
        panel.errorbar(n, sd, 2 * part["sd_mcse"], color=color, marker="o", markersize=4,
                       linewidth=1.6, capsize=2, label=scheme)  # fmt: skip
        if scheme == "capped":
            rate = sd[0] * np.sqrt(n[0] / n)
            panel.plot(n, rate, color=style.FAINT, linestyle=(0, (1.5, 1.5)), label="rate 1/√n")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(sorted(set(summary["n"])), [f"{n:,}" for n in sorted(set(summary["n"]))])
    panel.minorticks_off()
    panel.set_xlabel("n")
    panel.set_title("\nSD of Delta")
    panel.grid(True, axis="both")
