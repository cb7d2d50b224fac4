"""Simulation-based calibration of the general location model: ``python -m
tests.long_runs.general_sbc``.

As ``sbc``: parameters from the priors of methods 3, databases from the parameters, ranks of the
true values among thinned draws. With ``split`` every record is there three times with fractional
risk weights that add up to one: the pseudo-posterior then is the posterior of the database.

Wrong samplers that must be rejected: residual SDs times 1.3; records at a spike kept in the
regression of the amount, as zeros; regressions that do not look at categories; one regression of
both sides of a split; interactions under a ridge three times as wide, or under none. With PSUs the
SDs of their effects times 1.3, in the place of residual SDs, and no effects. Results go to
tests/golden/general_sbc.json; ``--case`` runs some of them.
"""

import argparse
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import date
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import scipy

import surveysynth
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.stats import GeneralStats, GroupRows
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign
from tests.long_runs.sbc import LEVEL, of_batches, ranks_of, smallest
from tests.models.general_location.general_cases import (
    BENEFIT,
    BY,
    INCOME,
    SICK,
    TAX,
    WORK,
    general_design,
    model_for,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "general_sbc.json"
WRONG = 1.3
#: Of the copies of a record.
PARTS = (0.2, 0.3, 0.5)
NARROW = {"coefficient_scale": 1.0, "residual_scale": 0.5, "logit_sd": 1.5}
CLUSTERED = {**NARROW, "psu_scale": 0.7, "lkj": 2.0}
KINDS = {
    "semicontinuous": (BENEFIT,), "categorical": (SICK, WORK), "both": (WORK, BENEFIT),
    "two sides": (TAX,), "continuous": (INCOME,),
}  # fmt: skip

EMPTY: Mapping[str, Any] = MappingProxyType({})
Quantities = dict[str, FloatArray]
#: An outcome, and the category of the side that is meant: 0, or 1 below a split.
Amount: TypeAlias = tuple[int, int]
#: Of a regression: its name, amount (None: the weight), discrete parts and earlier amounts.
Part: TypeAlias = tuple[str, Amount | None, list[int], list[Amount]]


@dataclass(frozen=True)
class Case:
    """Outcomes by name, groups, priors, size of the databases.

    regions: of the design, whose interactions with sex are shrunken if ``ridged``; psus: with
    effects, one of which has ``astride`` records of another region.
    """

    outcomes: str
    wrong: str
    by: tuple[str, ...] = ()
    n: int = 60
    split: bool = False
    priors: Mapping[str, float] = field(default_factory=lambda: NARROW)
    replications: int = 500
    draws: int = 63
    thin: int = 10
    warmup: int = 200
    regions: int = 2
    ridged: bool = False
    psus: int = 0
    astride: int = 0

    @property
    def design(self) -> PublicDesign:
        """Of its records, each of them once."""
        return _design(
            self.outcomes, self.n, regions=self.regions, ridged=self.ridged, psus=self.psus,
            astride=self.astride,
        )  # fmt: skip

    @property
    def model(self) -> GeneralLocation:
        """The general form of FBS."""
        return model_for(self.by, "fbs", **self.priors)


@cache
def _design(outcomes: str, n: int, **more: Any) -> PublicDesign:
    return general_design(n, KINDS[outcomes], **more)


CASES = {
    "semicontinuous": Case("semicontinuous", "zeros kept"),
    "semicontinuous, fractional weights": Case("semicontinuous", "zeros kept", split=True),
    "semicontinuous, default priors": Case("semicontinuous", "zeros kept", priors={}, thin=15),
    "semicontinuous, groups": Case(
        "semicontinuous", "zeros kept", by=("region",), n=160, replications=250, thin=20
    ),
    "categorical": Case("categorical", "categories apart"),
    "categorical, fractional weights": Case("categorical", "categories apart", split=True),
    "categorical and semicontinuous": Case("both", "categories apart", n=100, replications=250),
    "two sides, groups": Case(
        "two sides", "sides pooled", by=("region",), n=160, replications=250, thin=20
    ),
    "interactions": Case("continuous", "wide ridge", n=40, regions=4, ridged=True),
    "interactions, cells": Case(
        "continuous", "no ridge", by=BY, n=100, regions=4, ridged=True, replications=250, thin=20
    ),
    "interactions, categorical": Case(
        "categorical", "wide logits", n=60, regions=4, ridged=True
    ),
    "semicontinuous, clusters": Case(
        "semicontinuous", "no effects", n=120, psus=14, astride=4, priors=CLUSTERED,
        replications=250, thin=20,
    ),
    "categorical, clusters, fractional weights": Case(
        "categorical", "no effects", n=120, psus=14, astride=4, split=True, priors=CLUSTERED,
        replications=250, thin=20,
    ),
}


@dataclass(frozen=True)
class Databases:
    """category (B, n, p) and z (B, n, p + 1), one column an outcome, absent amounts zero; group
    (n,) of the records, x (n, K); psu (n,), if PSUs have effects."""

    category: IntArray
    z: FloatArray
    x: FloatArray
    group: IntArray
    psu: IntArray | None = None

    def effect(self, theta: Theta, column: int | slice) -> FloatArray | float:
        """Of the PSU of each record (B, S, n), or (B, S, n, c); zero without effects."""
        if self.psu is None or PSU_EFFECT not in theta:
            return 0.0
        return theta[PSU_EFFECT][:, :, self.psu][..., column]

    def indicators(self, outcomes: list[int], sizes: tuple[int, ...]) -> list[FloatArray]:
        """Of the categories but the first, (B, n) each."""
        chosen = [(j, c) for j in outcomes for c in range(1, sizes[j])]
        return [(self.category[:, :, j] == c).astype(float) for j, c in chosen]

    def amount(self, amount: Amount) -> FloatArray:
        """A column of z (B, n), zero where it is absent."""
        j, side = amount
        return np.where(self.category[:, :, j] == side, self.z[:, :, j], 0.0)

    def columns(self, added: list[FloatArray]) -> FloatArray:
        """(x, added) (B, n, C)."""
        lead = self.category.shape[:2]
        x = np.broadcast_to(self.x, (*lead, self.x.shape[1]))
        return np.concatenate([x, *(each[..., None] for each in added)], axis=-1)


def sizes_of(case: Case) -> tuple[int, ...]:
    """Categories of each outcome."""
    return tuple(outcome.categories for outcome in case.design.outcomes)


def parts_of(case: Case) -> list[Part]:
    """Regressions in order."""
    outcomes = case.design.outcomes
    result: list[Part] = []
    earlier: list[Amount] = []
    everything = list(range(len(outcomes)))
    for j, outcome in enumerate(outcomes):
        before, others = list(earlier), [k for k in everything if k != j]
        for side, name in enumerate([f"{j + 1}", f"{j + 1}_below"][: len(outcome.sides)]):
            result.append((name, (j, side), others, before))
            earlier.append((j, side))
    return [*result, ("weight", None, everything, earlier)]


def regressors(case: Case, data: Databases, part: Part) -> FloatArray:
    """x~ (B, n, C) of a regression."""
    return data.columns(data.indicators(part[2], sizes_of(case)))


def prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of the parameters from their prior (methods 3), leading axis ``count``."""
    priors: Mapping[str, float] = case.model.priors
    sizes, k = sizes_of(case), case.design.matrix.x_cells.shape[1]
    groups = case.model.groups(case.design).count
    theta: Theta = {}
    width = k
    for j, size in enumerate(sizes):
        if size > 1:
            shape = (count, width, size - 1)
            sd = np.full((width, 1), priors["logit_sd"])
            sd[np.flatnonzero(case.design.matrix.ridged)] = 2.0 * priors["interaction_scale"]
            theta[f"logit_{j + 1}"] = sd * rng.standard_normal(shape)
            width += size - 1
    ridged = np.flatnonzero(case.design.matrix.ridged)
    # Interactions over their scale, in the regression of each amount: a record of variances s_0^2.
    shrunken: dict[Amount | None, FloatArray] = {}
    for name, own, discrete, earlier in parts_of(case):
        before = k + sum(sizes[j] - 1 for j in discrete)
        width = before + len(earlier)
        tau = priors["coefficient_scale"] * np.abs(rng.standard_t(3, count))
        scale = priors["residual_scale"] * np.abs(rng.standard_t(3, count))
        core = tau[:, None] * rng.standard_normal((count, width))
        shrunken[own] = scale[:, None] * rng.standard_normal((count, ridged.size))
        for i, amount in enumerate(earlier):
            shrunken[own] += core[:, before + i, None] * shrunken[amount]
        core[:, ridged] = priors["interaction_scale"] * shrunken[own]
        theta[f"coefficients_{name}"] = core
        theta[f"coefficient_scale_{name}"] = tau
        if not case.by:
            theta[f"variance_{name}"] = scale[:, None] ** 2
            continue
        nu = priors["pooling_df"] * np.abs(rng.standard_cauchy(count))
        # Of few degrees of freedom a chi-square may be zero to a double.
        shape_half = np.broadcast_to(0.5 * nu[:, None], (count, groups))
        log_gamma = np.log(rng.gamma(shape_half + 1.0))
        log_gamma += np.log(rng.random((count, groups))) / shape_half
        log_variance = np.log(shape_half) + 2.0 * np.log(scale)[:, None] - log_gamma
        theta[f"variance_{name}"] = np.exp(log_variance)
        theta[f"pooled_scale_{name}"], theta[f"pooled_df_{name}"] = scale, nu
        if earlier:
            t = priors["slope_scale"] * np.abs(rng.standard_t(3, count))
            noise = rng.standard_normal((count, groups, len(earlier)))
            theta[f"slopes_{name}"] = t[:, None, None] * noise
            theta[f"slope_scale_{name}"] = t
    return theta | prior_of_effects(case, count, rng)


def prior_of_effects(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of T and of the effects; LKJ(a) is the correlation of a Wishart of D - 1 + 2 a."""
    psu = case.design.psu
    if psu is None:
        return {}
    priors, d = case.model.priors, columns_of(case)[-1].stop
    root = rng.standard_normal((count, d, round(d - 1 + 2 * priors["lkj"])))
    root /= np.sqrt((root**2).sum(-1, keepdims=True))
    scale = priors["psu_scale"] * np.abs(rng.standard_t(3, (count, d)))
    root *= scale[..., None]
    covariance = root @ root.swapaxes(-1, -2)
    noise = rng.standard_normal((count, int(psu.max()) + 1, d))
    effects = noise @ np.linalg.cholesky(covariance).swapaxes(-1, -2)
    return {PSU_COVARIANCE: covariance, PSU_EFFECT: effects}


def columns_of(case: Case) -> list[slice]:
    """Columns of effects of the logit of each outcome, none for one without, then of z."""
    cuts = np.cumsum([0, *(size - 1 for size in sizes_of(case)), len(parts_of(case))])
    return [slice(*each) for each in pairwise(cuts.tolist())]


def log_shares(
    rows: FloatArray, coefficients: FloatArray, effect: FloatArray | float = 0.0
) -> FloatArray:
    """log p (B, S, n, C) of rows (B, n, P), coefficients (B, S, P, C - 1) and effects."""
    eta = rows[:, None] @ coefficients + effect
    eta = np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1)
    top = eta.max(-1, keepdims=True)
    shifted = eta - top
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def means(
    case: Case, theta: Theta, data: Databases, part: Part
) -> tuple[FloatArray, FloatArray]:
    """Means and variances (B, S, n) of a regression: slopes act on the residuals of earlier amounts
    about their own means, where these are there."""
    name, _, _, earlier = part
    names, first = [each[0] for each in parts_of(case)], columns_of(case)[-1].start

    def fitted(part: Part) -> tuple[FloatArray, FloatArray]:
        x, core = regressors(case, data, part), theta[f"coefficients_{part[0]}"]
        size = x.shape[-1]
        effect = data.effect(theta, first + names.index(part[0]))
        return core[..., :size] @ x.swapaxes(-1, -2) + effect, core[..., size:]

    mean, slopes = fitted(part)
    # The slopes of each record (B, S, n, k).
    slopes = slopes[:, :, None]
    if f"slopes_{name}" in theta:
        slopes = slopes + theta[f"slopes_{name}"][:, :, data.group]
    parts = {each[1]: each for each in parts_of(case)}
    for k, amount in enumerate(earlier):
        residual = data.amount(amount)[:, None] - fitted(parts[amount])[0]
        there = data.category[:, None, :, amount[0]] == amount[1]
        mean = mean + slopes[..., k] * np.where(there, residual, 0.0)
    return mean, theta[f"variance_{name}"][..., data.group]


def databases(case: Case, theta: Theta, rng: np.random.Generator) -> Databases:
    """One of each of the parameters (B, ...)."""
    design, sizes = case.design, sizes_of(case)
    x = design.matrix.x_cells[design.matrix.cell]
    group = case.model.groups(design).cell[design.matrix.cell]
    count = theta["variance_weight"].shape[0]
    category = np.zeros((count, case.n, len(sizes)), dtype=np.int64)
    data = Databases(category, np.zeros((count, case.n, len(sizes) + 1)), x, group, design.psu)
    one = {name: values[:, None] for name, values in theta.items()}
    for j, size in enumerate(sizes):
        if size > 1:
            rows = data.columns(data.indicators(list(range(j)), sizes))
            noise = rng.gumbel(size=(count, case.n, size))
            effect = data.effect(one, columns_of(case)[j])
            shares = log_shares(rows, one[f"logit_{j + 1}"], effect)[:, 0]
            category[:, :, j] = (shares + noise).argmax(-1)
    for part in parts_of(case):
        own = part[1]
        mean, variance = means(case, one, data, part)
        values = mean[:, 0] + np.sqrt(variance[:, 0]) * rng.standard_normal((count, case.n))
        if own is None:
            data.z[:, :, -1] = values
        else:
            there = category[:, :, own[0]] == own[1]
            data.z[:, :, own[0]] = np.where(there, values, data.z[:, :, own[0]])
    return data


def quantities(case: Case, theta: Theta, data: Databases, wrong: float = 1.0) -> Quantities:
    """What is ranked, (B, S, d) by name; residual SDs times ``wrong``."""
    scaled = PSU_COVARIANCE if case.psus else "variance_"
    theta = {
        name: values * (wrong**2 if name.startswith(scaled) else 1.0)
        for name, values in theta.items()
    }
    lead = theta["variance_weight"].shape[:2]
    result = {name: values.reshape(*lead, -1) for name, values in theta.items()}
    ridged = np.flatnonzero(case.design.matrix.ridged)
    for name in [part[0] for part in parts_of(case)] if ridged.size else []:
        squares = (theta[f"coefficients_{name}"][..., ridged] ** 2).sum(-1, keepdims=True)
        result[f"interactions_{name}"] = squares
    for name in [name for name in theta if name.startswith("logit_")] if ridged.size else []:
        squares = (theta[name][..., ridged, :] ** 2).sum((-2, -1))[..., None]
        result[f"interactions_{name}"] = squares
    if PSU_COVARIANCE in theta:
        scale = np.sqrt(np.einsum("bsdd->bsd", theta[PSU_COVARIANCE]))
        one, other = np.tril_indices(scale.shape[-1], -1)
        covariance = result.pop(PSU_COVARIANCE).reshape(theta[PSU_COVARIANCE].shape)
        result["psu_scale"] = scale
        sds = scale[..., one] * scale[..., other]
        result["psu_correlation"] = covariance[..., one, other] / sds
        # A few: of the first PSU.
        result[PSU_EFFECT] = theta[PSU_EFFECT][:, :, 0]
    log_lik = np.zeros(lead)
    sizes = sizes_of(case)
    for j, size in enumerate(sizes):
        if size > 1:
            rows = data.columns(data.indicators(list(range(j)), sizes))
            effect = data.effect(theta, columns_of(case)[j])
            shares = log_shares(rows, theta[f"logit_{j + 1}"], effect)
            code = data.category[:, None, :, j, None]
            log_lik += np.take_along_axis(shares, code, -1)[..., 0].sum(-1)
    for part in parts_of(case):
        own = part[1]
        mean, variance = means(case, theta, data, part)
        z = data.z[:, None, :, -1 if own is None else own[0]]
        each = -0.5 * ((z - mean) ** 2 / variance + np.log(variance))
        if own is not None:
            each = np.where(data.category[:, None, :, own[0]] == own[1], each, 0.0)
        log_lik += each.sum(-1)
    return {**result, "log_likelihood": log_lik[..., None]}


def copied(design: PublicDesign, copies: int) -> PublicDesign:
    """Every record so many times, one after the other."""
    matrix = replace(design.matrix, cell=np.tile(design.matrix.cell, copies))
    frame = design.frame.loc[np.tile(np.arange(design.n), copies)].reset_index(drop=True)
    psu = None if design.psu is None else np.tile(design.psu, copies)
    return replace(design, frame=frame, matrix=matrix, psu=psu)


def statistics(case: Case, data: Databases, model: GeneralLocation) -> GeneralStats:
    """Of all databases, one batch."""
    parts = PARTS if case.split else (1.0,)
    design = copied(case.design, len(parts))
    alpha = np.repeat(parts, case.n)
    found = []
    for category, z in zip(data.category, data.z, strict=True):
        both = (np.tile(each, (len(parts), 1)) for each in (z, category))
        records = model.records_from_simulated(design, Simulated(*both))
        found.append(model.compress(records, alpha))
    return GeneralStats.stacked(found)


class WideLogits(Layout):
    """Interactions of logits with three times their prior SD."""

    def logit_sds(self, priors: Mapping[str, float]) -> list[FloatArray]:
        """Prior SDs (P,) of each logit."""
        wide = {**priors, "interaction_scale": 3.0 * priors["interaction_scale"]}
        return super().logit_sds(wide)


def mistaken(case: Case, sound: GeneralStats) -> tuple[GeneralStats, GeneralLocation]:
    """What the wrong sampler sees, and its model."""
    assert sound.rows is not None
    if case.wrong == "no effects":
        return replace(sound, psus=()), case.model
    if case.wrong == "wide ridge":
        scale = 3.0 * case.model.priors["interaction_scale"]
        return sound, model_for(case.by, **{**case.priors, "interaction_scale": scale})
    if case.wrong == "no ridge":
        return replace(sound, layout=replace(sound.layout, ridged=())), case.model
    if case.wrong == "wide logits":
        return replace(sound, layout=WideLogits(*astuple(sound.layout))), case.model
    x, z, present, total = (
        getattr(sound.rows, name).copy() for name in ("x", "z", "present", "total")
    )
    if case.wrong == "categories apart":
        x[..., sound.layout.columns :] = 0.0
    elif case.wrong == "zeros kept":
        # All zeros would be fitted exactly, which has no posterior: these databases stay.
        kept = total[..., 0].sum(1) > 0
        present[kept, ..., 0] = present[kept].any(-1)
        total[kept, ..., 0] = total[kept, ..., -1]
    else:
        z[..., 0] += z[..., 1]
        present[..., 0] |= present[..., 1]
        total[..., 0] += total[..., 1]
    return replace(sound, rows=GroupRows(x, z, present, total)), case.model


def ranks_of_batch(
    case: Case, count: int, rng: np.random.Generator
) -> tuple[dict[str, IntArray], ...]:
    """Ranks (count,) of each true quantity among its draws: of the sampler as it is, with
    residual SDs scaled, and of the one that sees the wrong statistics."""
    truth = prior(case, count, rng)
    data = databases(case, truth, rng)
    model = case.model
    plan = SamplingPlan(chains=1, warmup=case.warmup, draws=case.draws * case.thin)
    sound = statistics(case, data, model)
    drawn = []
    for stats, own in ((sound, model), mistaken(case, sound)):
        sampled = own.sample(stats, plan, rng)
        drawn.append({k: v[:, 0, case.thin - 1 :: case.thin] for k, v in sampled.items()})
    right = quantities(case, {name: values[:, None] for name, values in truth.items()}, data)
    samplers = (drawn[0], 1.0), (drawn[0], WRONG), (drawn[1], 1.0)
    return tuple(
        ranks_of(quantities(case, theta, data, factor), right) for theta, factor in samplers
    )


def calibrate(case: Case, seed: int) -> tuple[dict[str, Any], ...]:
    """Uniformity by parameter, of the three samplers."""
    return tuple(of_batches(partial(ranks_of_batch, case), case, seed))


def run(seed: int, chosen: Sequence[str] = (), before: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """All cases, or those chosen in the place of what there was of them, as written to the golden
    file."""
    results = {}
    for offset, (name, case) in enumerate(CASES.items()):
        if chosen and name not in chosen:
            results[name] = before[name]
            continue
        sound, scaled, wrong = calibrate(case, seed + offset)
        results[name] = {
            "settings": {**asdict(case), "seed": seed + offset},
            "smallest_p": smallest(sound),
            "tests": 2 * len(sound),
            "smallest_p_of_scales_x_1.3": smallest(scaled),
            "smallest_p_of_the_wrong_statistics": smallest(wrong),
            "parameters": sound,
        }
        print(
            f"{name:36s} {case.replications} databases, {2 * len(sound)} tests: smallest p "
            f"{smallest(sound):.3g}; scales {smallest(scaled):.3g}; {case.wrong} "
            f"{smallest(wrong):.3g}",
            flush=True,
        )
    versions = {
        "surveysynth": surveysynth.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
    return {"date": date.today().isoformat(), "versions": versions, "cases": results}


def failures(results: Mapping[str, Any]) -> list[str]:
    """Cases that are not as they should be."""
    return [
        name
        for name, case in results["cases"].items()
        if case["smallest_p"] < LEVEL
        or case["smallest_p_of_scales_x_1.3"] > LEVEL
        or case["smallest_p_of_the_wrong_statistics"] > LEVEL
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=2031)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--case", action="append", choices=list(CASES), default=[])
    arguments = parser.parse_args()
    before = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.case else {}
    results = run(arguments.seed, arguments.case, before.get("cases", EMPTY))
    # The date and versions stay those of what was run all together.
    results = {**results, **{k: v for k, v in before.items() if k != "cases"}}
    arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if failures(results):
        raise SystemExit(f"Not as it should be: {', '.join(failures(results))}")


if __name__ == "__main__":
    main()
