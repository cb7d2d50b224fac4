"""What one record does where fits do not share random numbers: ``python -m
tests.long_runs.noisy_search``.

The search for weights sees a sampler's noise where draws jump as weights move: NUTS, mixtures. (1)
FBS with Gibbs that starts another stream for every fit: a posterior of one mode, and the noise of
NUTS; (2) ``normal_mixture``, whose posterior has many modes, by gender alone; (3) an outcome of
several levels in units, whose draws drift apart from fit to fit. epsilon 10.8 (and 4), m = 3, the
plan of a release (8 x 200 draws for mixtures of 1,000), one record replaced; the log ratio of the
two posteriors over what is stated (of units jointly with their effects). In units also of one
database with itself, fitted with other random numbers: noise alone. Results go to
``golden/noisy_search.json``. About half an hour, nearly all of it mixtures and units (``--part
single`` leaves them as they are).
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, ClassVar  # noqa: E402

import numpy as np  # noqa: E402

from surveysynth._support.types import Theta  # noqa: E402
from surveysynth.errors import RefusedError  # noqa: E402
from surveysynth.evaluation.studies.population import published_cells  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.mechanism import PseudoPosterior  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.models.gaussian.fbs import FBS  # noqa: E402
from surveysynth.release.documents.privacy_file import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from surveysynth.survey.outcome import Outcome  # noqa: E402
from surveysynth.survey.survey import Survey  # noqa: E402
from tests.audit.cases import EXAMPLES, GENDER, frame_of  # noqa: E402
from tests.audit.lines import Case  # noqa: E402
from tests.audit.neighbours import Change, changed, places  # noqa: E402
from tests.audit.posterior import (  # noqa: E402
    UNCHANGED,
    Alike,
    compared,
    databases,
    prepared,
)

RESULTS = Path(__file__).parents[1] / "golden" / "noisy_search.json"
SEEDS = 1, 2
#: Of the surveys, apart from those of the fits.
DATA_SEED = 20260000
#: The model of each part; that of the first is ``Restarted``.
MODELS = {"single": "fbs", "mixture": "normal_mixture", "units": "general fbs"}
MOVED = Change(2.0), Change(8.0)
CHANGES = {
    "single": MOVED, "mixture": MOVED,
    "units": (Change(recode=True), Change(factor=50.0, recode=True), None),
}  # fmt: skip
USUAL = SamplingPlan()


class Restarted(FBS):
    """FBS whose every fit starts a stream of its own, whatever generator it is given."""

    common_random_numbers: ClassVar[bool] = False
    key: ClassVar[tuple[int, ...]] = (77,)
    fits: ClassVar[int] = 0

    def sample(self, stats: Any, plan: SamplingPlan, rng: Any) -> Theta:
        type(self).fits += 1
        return super().sample(stats, plan, np.random.default_rng([*self.key, self.fits]))


@dataclass(frozen=True)
class Setting:
    """One kind of survey and fit."""

    part: str
    n: int
    epsilon: float = 10.8
    plan: SamplingPlan = USUAL
    coarse: bool = False


SETTINGS = (
    Setting("single", 300, coarse=True),
    Setting("single", 1000),
    Setting("single", 1000, 4.0),
    Setting("single", 4000),
    Setting("single", 10_355),
    Setting("mixture", 300, plan=SamplingPlan(8, 150, 200), coarse=True),
    Setting("mixture", 1000, plan=SamplingPlan(8, 150, 200), coarse=True),
    Setting("units", 1000),
    Setting("units", 4000),
)


def words(change: Change | None) -> str:
    """A change, or none."""
    return UNCHANGED if change is None else change.name


def case_of(setting: Setting, seed: int) -> Case:
    """Return model and survey."""
    if setting.part == "units":
        return in_units(setting.n, DATA_SEED + seed)
    example = next(each for each in EXAMPLES if each.name == MODELS[setting.part])
    if setting.coarse:
        example = replace(example, survey={**example.survey, **GENDER})
    return example.case(setting.n, DATA_SEED + seed)


def in_units(n: int, seed: int) -> Case:
    """Return a survey of schools with five bands of salaries, the lowest of 2% of the records.

    All are compared with the third band, the first that is listed."""
    frame = frame_of(n, seed)
    rank = frame["local_salary"].rank(pct=True)
    bands = np.array(list("12345"))[np.searchsorted([0.02, 0.3, 0.6, 0.9], rank)]
    band = Outcome("band", "categorical", levels=tuple("31245"))
    survey = Survey.from_frame(
        frame.assign(band=bands), outcomes=(band,), weight="weight",
        strata="field", psu="school", lonely_psu="adjust", by=("field", "gender"),
        predictors="field + gender", population_size=published_cells().size,
    )  # fmt: skip
    settings = MechanismSettings(epsilon=10.8)
    return Case(MODELS["units"], get_model("fbs"), survey, PseudoPosterior(settings))


def lines_of(setting: Setting) -> Iterator[dict[str, Any]]:
    """A line a seed and change."""
    name = MODELS[setting.part]
    settings = MechanismSettings(
        epsilon=setting.epsilon, plan=setting.plan, shared_weights="allow"
    )
    for seed in SEEDS:
        case = prepared(case_of(setting, seed))
        survey = case.survey
        model = Restarted() if setting.part == "single" else case.model.of(survey.design)
        for change in CHANGES[setting.part]:
            other, stream = survey.confidential, np.random.default_rng(seed)
            if change is not None:
                other = changed(survey, places(survey)["typical"], change)
                stream = Alike(seed)
            both = databases(model, survey.design, [survey.confidential, other])
            made = run_batch(model, both, settings, stream)
            line: dict[str, Any] = {
                "model": name, "n": setting.n, "epsilon": setting.epsilon, "seed": seed,
                "change": words(change),
            }  # fmt: skip
            fits = [each[1] for each in made if not isinstance(each, RefusedError)]
            if len(fits) == len(made):
                line["fits"] = [len(each.search) for each in fits]
                line["mean_alpha"] = [float(f"{each.risk_weights.mean():.3g}") for each in fits]
            found = compared(model, settings, *zip(both, made, strict=True))
            line["ratio"] = None if found.get("ratio") is None else float(f"{found['ratio']:.3g}")
            line["verdict"] = found["verdict"]
            print(json.dumps(line), flush=True)
            yield line


def main() -> None:
    """Writes the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", action="append", choices=list(MODELS))
    parts = parser.parse_args().part or list(MODELS)
    lines = [line for each in SETTINGS if each.part in parts for line in lines_of(each)]
    if RESULTS.exists():
        kept = [model for part, model in MODELS.items() if part not in parts]
        before = json.loads(RESULTS.read_text(encoding="utf-8"))["lines"]
        lines += [line for line in before if line["model"] in kept]
    content = {
        "date": datetime.now(UTC).date().isoformat(), "data_seed": DATA_SEED,
        "versions": library_versions(), "lines": lines,
    }  # fmt: skip
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
