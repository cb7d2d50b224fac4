"""Designs, parameters and records for tests of the general location model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from surveysynth._support.types import IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralFBP, GeneralFBS, GeneralLocation
from surveysynth.models.units import PSU_COVARIANCE
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign
from surveysynth.survey.transforms import Transform
from tests.models.model_designs import make_design

PLAIN = Transform("identity")
BENEFIT = Outcome("benefit", "semicontinuous", transform=PLAIN, spikes=(0.0,))
CAPPED = Outcome("capped", "semicontinuous", transform=PLAIN, spikes=(0.0, 3.0))
WORK = Outcome("work", "categorical", levels=("none", "part", "full"))
SICK = Outcome("sick", "binary")
INCOME = Outcome("income", transform=PLAIN)
TAX = Outcome("tax", "semicontinuous", transform=PLAIN, spikes=(0.0,), split=0.0)
#: Without a spike, and about another point.
GAIN = Outcome("gain", "semicontinuous", transform=PLAIN, split=1.5)
#: One of each kind.
ALL = (BENEFIT, WORK, INCOME, SICK, CAPPED)
BY = ("region", "sex")


def general_design(
    n: int,
    outcomes: Sequence[Outcome],
    regions: int = 3,
    seed: int = 1,
    weighted: bool = True,
    ridged: bool = False,
    psus: int = 0,
    astride: int = 0,
) -> PublicDesign:
    """Main effects of region and sex; cells of unequal size. ridged: shrunken interactions too.

    psus: PSUs with effects, in regions; there are no effects of none. astride: records of the
    second region that a unit of the first has.
    """
    rng = np.random.default_rng([seed, regions])
    region, sex = rng.integers(0, regions, n), rng.integers(0, 2, n)
    region = np.minimum(region, rng.integers(0, regions, n))
    region[: 2 * regions], sex[: 2 * regions] = np.divmod(np.arange(2 * regions), 2)
    pairs = np.array([(r, s) for r in range(regions) for s in range(2)])
    dummies = pairs[:, :1] == np.arange(1, regions)
    x = np.column_stack([np.ones(2 * regions), dummies, pairs[:, 1]]).astype(float)
    if ridged:
        x = np.hstack([x, dummies * pairs[:, 1:]])
    frame = pd.DataFrame({"region": region.astype(str), "sex": sex.astype(str)})
    plain = make_design(x, region * 2 + sex)
    return replace(
        plain,
        matrix=replace(plain.matrix, ridged=np.arange(x.shape[1]) > regions),
        frame=frame,
        by=BY,
        levels={name: tuple(sorted(set(frame[name]))) for name in BY},
        outcomes=tuple(outcomes),
        weight_name="w" if weighted else None,
        **({"psu": _psus(region, psus, astride, rng), "psu_name": "psu"} if psus else {}),
    )


def _psus(region: IntArray, count: int, astride: int, rng: np.random.Generator) -> IntArray:
    """Codes (n,) of PSUs in regions, of unequal size and at least one record."""
    regions = int(region.max()) + 1
    code = region + regions * rng.integers(0, max(count // regions, 1), region.size)
    code[np.flatnonzero(region == 1)[:astride]] = 0
    return np.asarray(np.unique(code, return_inverse=True)[1], dtype=np.int64)


def model_for(by: Sequence[str] = (), form: str = "fbs", **priors: float) -> GeneralLocation:
    """The general form, its groups as they are asked for."""
    kind = GeneralFBS if form == "fbs" else GeneralFBP
    return kind(tuple(by), priors=priors)


def layout_of(model: GeneralLocation, design: PublicDesign) -> Layout:
    return Layout.of(design, model.grouped)


def random_theta(
    model: GeneralLocation, design: PublicDesign, draws: int, seed: int = 50, size: float = 0.4
) -> Theta:
    """draws of arbitrary parameters, those of likelihood and simulation alone."""
    rng = np.random.default_rng(seed)
    layout, groups = layout_of(model, design), model.groups(design).count
    theta: Theta = {}
    for part in layout.logits:
        shape = (draws, part.columns.size, part.own.size)
        theta[f"logit_{part.name}"] = 2.0 * size * rng.standard_normal(shape)
    for regression in layout.regressions:
        name = regression.name
        theta[f"coefficients_{name}"] = size * rng.standard_normal((draws, regression.width))
        theta[f"variance_{name}"] = np.exp(rng.uniform(-1.0, 0.5, (draws, groups)))
        if model.grouped and regression.earlier.size:
            shape = (draws, groups, regression.earlier.size)
            theta[f"slopes_{name}"] = 0.3 * size * rng.standard_normal(shape)
    if design.psu is not None:
        d = layout.amount_effects.stop
        root = size * (np.eye(d) + 0.3 * np.tri(d, k=-1) * rng.standard_normal((draws, d, d)))
        theta[PSU_COVARIANCE] = root @ root.swapaxes(-1, -2)
    return theta


def draw(theta: Theta, index: int) -> Theta:
    return {name: values[index] for name, values in theta.items()}


def confidential_of(design: PublicDesign, simulated: Simulated) -> Confidential:
    """The survey whose records a simulated dataset is."""
    weight = None if design.weight_name is None else np.exp(simulated.z[:, -1])
    return Confidential(simulated.outcomes(design), weight)
