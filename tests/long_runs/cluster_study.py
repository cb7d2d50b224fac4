"""What effects of PSUs do for standard errors, in some minutes:
``python -m tests.long_runs.cluster_study``.

Samples of the two-stage setting: 10 strata, 5 PSUs of each, 20 records of each, a variance of 0.02
between PSUs in the log outcome and in the log size. Coverage of nominal 95% intervals by PSU, and
mean SE over the SD of the estimates, for counts and means of strata, of groups, of their cells and
of all. Each model is fitted with and without effects, to all records in full ("1") and at epsilon
10.8, where its draws are debiased by the mean shift of the first few samples (``--shifts``): the
shift depends little on the sample, and its own simulations cost fifty fits. "10.8, SDs of PSUs as
released" leaves those SDs as they are. The result is ``golden/cluster_study.csv``, with its
circumstances beside it; it is written after every setting.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from surveysynth._support.types import FloatArray  # noqa: E402
from surveysynth.errors import RefusedError  # noqa: E402
from surveysynth.estimation.combining import Combined, t_interval  # noqa: E402
from surveysynth.estimation.estimates import Estimates  # noqa: E402
from surveysynth.estimation.taylor import SampleDesign  # noqa: E402
from surveysynth.evaluation.studies.coverage import BATCH_PLAN, CoverageStudy, two_stage_study  # noqa: E402
from surveysynth.inference.debias import debias_many  # noqa: E402
from surveysynth.inference.synthesis import synthesise  # noqa: E402
from surveysynth.mechanisms.base import PrivateDraws  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.fit import Database  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE  # noqa: E402
from surveysynth.release.documents.privacy_file import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from surveysynth.survey.survey import PublicDesign, Survey  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden"
SEED = 20260301
MODELS = ("fbs", "fbp")
RELEASES = 3
PLAN = SamplingPlan(2, 150, 500)
#: Rows of the tables by kind: the whole, margins, cells.
KINDS = ("overall", "stratum", "group", "stratum by group")


def designs(survey: Survey, *, effects: bool) -> PublicDesign:
    """The design that a model sees: without PSUs it has no effects of them."""
    return survey.design if effects else replace(survey.design, psu=None)


def fitted(
    name: str, surveys: Sequence[Survey], settings: MechanismSettings, *, effects: bool
) -> list[PrivateDraws | None]:
    """Draws of each sample, None where the fit was refused."""
    model, databases = get_model(name), []
    for survey in surveys:
        records = model.records(designs(survey, effects=effects), survey.confidential)
        databases.append(Database(records, survey.design.n))
    results = run_batch(model, databases, settings, np.random.default_rng(SEED))
    return [None if isinstance(each, RefusedError) else each[0] for each in results]


def shifted(
    name: str, surveys: Sequence[Survey], draws: Sequence[PrivateDraws | None], *,
    effects: bool, shifts: int,
) -> tuple[list[PrivateDraws | None], FloatArray]:
    """All draws debiased by the mean shift of the first ``shifts`` of them, and these shifts."""
    model = get_model(name)
    pairs = zip(surveys, draws, strict=True)
    releases = [(designs(s, effects=effects), d) for s, d in pairs if d is not None][:shifts]
    made = debias_many(model, releases, np.random.default_rng(SEED), plan=BATCH_PLAN)
    found = np.array([each.record.shift for each in made if each.record.debiased])
    return [moved(name, each, found.mean(0)) for each in draws], found


def moved(name: str, draws: PrivateDraws | None, shift: FloatArray) -> PrivateDraws | None:
    """Draws with log scales that are larger by ``shift``."""
    if draws is None:
        return None
    model = get_model(name)
    log_scales = model.log_scales(draws.theta) + shift
    return replace(draws, theta=model.with_log_scales(draws.theta, log_scales))


def with_psus_of(
    released: Sequence[PrivateDraws | None], debiased: Sequence[PrivateDraws | None]
) -> list[PrivateDraws | None]:
    """Debiased draws with the covariance of effects as it was released."""
    result: list[PrivateDraws | None] = []
    for one, other in zip(released, debiased, strict=True):
        if one is None or other is None:
            result.append(None)
            continue
        theta = {**other.theta, PSU_COVARIANCE: one.theta[PSU_COVARIANCE]}
        result.append(replace(other, theta=theta))
    return result


def tables(
    study: CoverageStudy, name: str, survey: Survey, draws: PrivateDraws, sample: int, *,
    effects: bool,
) -> Iterator[tuple[str, Combined]]:
    """Counts and means of one release, with SEs by PSU whatever the model knew of them."""
    model, design = get_model(name), survey.design
    estimates = Estimates(
        study.domains(design.frame), SampleDesign.from_public(design), study.table_keys(),
        linearisation=study.linearisation, population_size=design.population_size,
        draws=draws.settings.m, replicates=study.replicates_per_draw,
    )  # fmt: skip
    datasets = synthesise(
        model, designs(survey, effects=effects), draws,
        replicates_per_draw=study.replicates_per_draw,
        rng=np.random.default_rng([SEED, sample]), scale_to=design.population_size,
    )  # fmt: skip
    for data in datasets:
        estimates.add(data)
    for key in estimates.keys:
        yield key[0], estimates.combined(key)


class Collected:
    """Estimates of all samples by setting."""

    def __init__(self, study: CoverageStudy) -> None:
        self.study = study
        truth = study.truth()
        self.truth = {s: part["truth"].to_numpy() for s, part in truth.groupby("statistic")}
        self.found: dict[tuple[str, str, str, str], list[tuple[FloatArray, ...]]] = {}

    def add(self, key: tuple[str, str, str], statistic: str, combined: Combined) -> None:
        """One table."""
        lower, upper = t_interval(combined, self.study.level)
        truth = self.truth[statistic]
        covered = ((lower <= truth) & (truth <= upper)).astype(float)
        row = combined.estimate, combined.standard_error, covered
        self.found.setdefault((*key, statistic), []).append(row)

    def summary(self, kinds: Sequence[str]) -> pd.DataFrame:
        """Mean coverage and SE over SD by setting, statistic and kind of row."""
        lines = []
        for (model, effects, epsilon, statistic), rows in self.found.items():
            estimate, se, covered = (np.array(part) for part in zip(*rows, strict=True))
            truth, sd = self.truth[statistic], estimate.std(axis=0, ddof=1)
            for kind in KINDS:
                at = np.array([k == kind for k in kinds]) & (sd > 1e-9 * np.abs(truth))
                if not at.any():
                    continue
                by_sample = covered[:, at].mean(1)
                lines.append(
                    {
                        "model": model, "effects": effects, "epsilon": epsilon,
                        "statistic": statistic, "rows": kind,
                        "coverage": by_sample.mean(),
                        "coverage_mcse": by_sample.std(ddof=1) / np.sqrt(len(rows)),
                        "se_over_sd": float(np.mean(np.sqrt((se[:, at] ** 2).mean(0)) / sd[at])),
                        "bias_over_sd": float(np.mean((estimate[:, at].mean(0) - truth[at])
                                                      / sd[at])),
                        "samples": len(rows),
                    }
                )  # fmt: skip
        return pd.DataFrame(lines)


class Study:
    """All settings, one after the other."""

    def __init__(self, samples: int, private: int, shifts: int) -> None:
        self.study = two_stage_study(seed=SEED, replicates=samples, methods=("sample",))
        self.surveys = [self.study.survey(sample) for sample in range(samples)]
        self.private, self.shifts = private, shifts
        self.collected = Collected(self.study)
        self.facts: dict[str, Any] = {"refused": {}, "log_shift": {}, "seconds": {}}
        table = self.study.domains(self.surveys[0].design.frame).table
        margins = (table[["stratum", "group"]] == "All").to_numpy()
        order = {(True, True): 0, (False, True): 1, (True, False): 2, (False, False): 3}
        self.kinds = [KINDS[order[bool(stratum), bool(group)]] for stratum, group in margins]

    def sample(self) -> None:
        """The samples themselves."""
        study = self.study
        for survey in self.surveys:
            design, weight = survey.design, survey.confidential.sampling_weight
            assert weight is not None
            estimates = Estimates(
                study.domains(design.frame), SampleDesign.from_public(design), study.table_keys(),
                linearisation=study.linearisation, population_size=design.population_size,
            )  # fmt: skip
            estimates.add_alone(survey.confidential.outcome, weight)
            for key in estimates.keys:
                self.collected.add(("sample", "", ""), key[0], estimates.combined(key))

    def setting(self, name: str, epsilon: str, *, effects: bool) -> None:
        """One model, with or without effects, at one epsilon."""
        key = name, "with" if effects else "without", epsilon
        start, words = time.process_time(), " ".join(key)
        used = self.surveys if epsilon == "1" else self.surveys[: self.private]
        risk = "none" if epsilon == "1" else "lipschitz"
        settings = MechanismSettings(
            epsilon=10.8, m=RELEASES, plan=PLAN, risk=risk, origin="density"
        )
        draws = fitted(name, used, settings, effects=effects)
        self.facts["refused"][words] = sum(each is None for each in draws)
        releases = {key: draws}
        if epsilon != "1":
            releases[key], found = shifted(
                name, used, draws, effects=effects, shifts=self.shifts
            )
            self.facts["log_shift"][words] = found.mean(0).round(3).tolist()
            if effects:
                as_released = name, "with", f"{epsilon}, SDs of PSUs as released"
                releases[as_released] = with_psus_of(draws, releases[key])
        for each_key, each in releases.items():
            for sample, (survey, draw) in enumerate(zip(used, each, strict=True)):
                if draw is not None:
                    for made in tables(self.study, name, survey, draw, sample, effects=effects):
                        self.collected.add(each_key, *made)
        self.facts["seconds"][words] = round(time.process_time() - start)

    def write(self, out: Path) -> pd.DataFrame:
        """What there is so far."""
        summary = self.collected.summary(self.kinds)
        summary.round(4).to_csv(out / "cluster_study.csv", index=False, lineterminator="\n")
        sizes = {"samples": len(self.surveys), "private": self.private, "shifts": self.shifts}
        facts = {"seed": SEED, **sizes, **self.facts, "versions": library_versions()}
        text = json.dumps(facts, indent=1) + "\n"
        (out / "cluster_study.json").write_text(text, encoding="utf-8")
        return summary


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200, help="fitted in full")
    parser.add_argument("--private", type=int, default=100, help="of them at epsilon 10.8")
    parser.add_argument("--shifts", type=int, default=8, help="of them simulated for debiasing")
    parser.add_argument("--out", type=Path, default=GOLDEN)
    arguments = parser.parse_args()
    study = Study(arguments.samples, arguments.private, arguments.shifts)
    study.sample()
    summary = study.write(arguments.out)
    for epsilon in ("1", "10.8"):
        for effects in (True, False):
            for name in MODELS:
                study.setting(name, epsilon, effects=effects)
                summary = study.write(arguments.out)
                print(name, epsilon, effects, flush=True)
    print(summary.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
