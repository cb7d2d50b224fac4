"""What debiasing does for the count models: ``python -m tests.long_runs.debias_study``.

Databases are simulated from known parameters, each goes through the mechanism at a bound of 1.8 and
m = 3 draws, and its release is debiased from the released draws alone. What down-weighting did to a
log scale or a log mean is the posterior mean of the private fit less that of the unweighted fit to
the same database; debiasing should leave none of it. Some minutes of processor time; the result is
``golden/debias_study.json``, which ``test_debias.py`` holds to the claim. ``--case NAME`` runs
single cases and keeps the results of the others.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from surveysynth._support.types import FloatArray, Theta  # noqa: E402
from surveysynth.inference.debias import debias_many  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.fit import Database  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from surveysynth.survey.survey import PublicDesign, Survey  # noqa: E402
from surveysynth.survey.transforms import Transform  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "debias_study.json"
PLAN = SamplingPlan(4, 60, 150)
SETTINGS = MechanismSettings(epsilon=10.8, m=3, plan=PLAN, origin="density")
MEAN = 20.0
PHI = 5.0


@dataclass(frozen=True)
class Case:
    """A count model, whether the survey has a weight, and the number and size of databases."""

    model: str
    weight: bool
    databases: int = 24
    n: int = 1000
    simulated: int = 9
    seed: int = 8


CASES = {
    "Negative binomial": Case("negative_binomial", weight=False),
    "Negative binomial, weight": Case("negative_binomial", weight=True),
    "Poisson": Case("poisson", weight=False),
    "Poisson, weight": Case("poisson", weight=True),
}


def design_of(case: Case) -> PublicDesign:
    """Two groups, a single stratum; what the file has as outcome and weight plays no part."""
    frame = pd.DataFrame(
        {
            "group": np.tile(["a", "b"], case.n // 2),
            "events": np.arange(case.n) % 3,
            "weight": 1.0 + np.arange(case.n) % 5,
        }
    )
    survey = Survey.from_frame(
        frame, outcome="events", weight="weight" if case.weight else None, by=["group"],
        population_size=50_000, transforms=Transform("identity"),
    )  # fmt: skip
    return survey.design


def truth_of(case: Case, design: PublicDesign) -> Theta:
    """Means 20 and 25 of the groups; weights that fall with the count."""
    x = design.matrix.x_cells
    theta = {"beta": np.linalg.solve(x, np.log(MEAN) + np.array([0.0, 0.22]))}
    if case.model == "negative_binomial":
        theta["overdispersion"] = np.array([PHI])
    if case.weight:
        theta["weight_coefficients"] = np.concatenate([[-0.4], np.linalg.solve(x, [5.0, 5.2])])
        theta["weight_variance"] = np.array([0.16])
    return theta


def names_of(case: Case) -> list[str]:
    """What is debiased, in the order of the model's coordinates: log scales, the log mean of the
    first group, and the difference of the second."""
    scales = ["log phi"] * (case.model == "negative_binomial") + ["log s"] * case.weight
    return [*scales, "intercept", "slope"]


def study(case: Case) -> dict[str, Any]:
    """Mean shifts against the unweighted fits, before and after debiasing."""
    start = time.process_time()
    model, design = get_model(case.model), design_of(case)
    truth, rng = truth_of(case, design), np.random.default_rng(case.seed)
    databases = []
    for _ in range(case.databases):
        simulated = model.simulate(truth, design, rng, "sample")
        databases.append(Database.simulated(model, design, simulated))
    finished = run_batch(model, databases, SETTINGS, rng)
    results = [each for each in finished if isinstance(each, tuple)]
    releases = [(design, private) for private, _ in results]
    debiased = debias_many(model, releases, rng, databases=case.simulated)
    before = np.array([fit.means - fit.unweighted_means for _, fit in results])
    shift = np.array([each.record.shift or np.zeros(before.shape[1]) for each in debiased])
    return {
        "settings": {**asdict(case), "plan": asdict(PLAN), "epsilon": SETTINGS.epsilon},
        "released": len(results),
        "status": sorted({each.record.status for each in debiased}),
        "shifts": {
            name: {
                "before": summary(before[:, j]),
                "after": summary(before[:, j] + shift[:, j]),
            }
            for j, name in enumerate(names_of(case))
        },
        "seconds": round(time.process_time() - start, 1),
    }


def summary(shifts: FloatArray) -> dict[str, float]:
    """Mean over databases, its standard error, and the SD of one."""
    spread = float(np.std(shifts, ddof=1))
    mean = float(np.mean(shifts))
    return {"mean": mean, "standard_error": spread / np.sqrt(shifts.size), "sd": spread}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--case", action="append", choices=list(CASES))
    arguments = parser.parse_args()
    kept: dict[str, Any] = {}
    if arguments.case and arguments.out.exists():
        kept = json.loads(arguments.out.read_text(encoding="utf-8"))["cases"]
    for name in arguments.case or CASES:
        kept[name] = {**study(CASES[name]), "versions": library_versions()}
        print(name, json.dumps(kept[name]["shifts"]), kept[name]["seconds"], flush=True)
    cases = {name: kept[name] for name in CASES if name in kept}
    arguments.out.write_text(json.dumps({"cases": cases}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
