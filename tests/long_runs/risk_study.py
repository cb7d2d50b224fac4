"""What the risk measures do, beside what the papers report:
``python -m tests.long_runs.risk_study``.

Three studies, some minutes of processor time; the result is ``golden/risk_study.json``, and
``tests/evaluation/studies/test_risk_study.py`` holds it to the published findings.
``--figures FOLDER`` draws them.

mixture   0.2 NB(100, 5) + 0.8 NB(100, 20), n = 1000 ([R] 2.2): its Table 1 beside ours.
poisson   Poisson(100), n = 1000 ([R], early version): weights at the same bound.
income    ce2015q3 ([S]): identification risk of synthetic family income under three measures at
          one bound. The synthesizer is the normal regression of asinh(income / 10,000); the
          slides have a mixture of regressions, ``--model normal_mixture``: minutes a measure.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from scipy.stats import ks_2samp  # noqa: E402

from surveysynth.evaluation.microdata import identification_risk  # noqa: E402
from surveysynth.inference.synthesis import synthesize  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.risk import CountBased, Pairwise  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from surveysynth.survey.survey import Survey  # noqa: E402
from surveysynth.survey.transforms import Transform  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "risk_study.json"
LITERATURE = Path(__file__).parents[2] / "tables" / "literature"
CE_DATA = Path(os.environ.get("SURVEYSYNTH_CE_DATA", "shared/data/ce2015q3.csv"))

#: Without a target: the map of the papers as it stands.
FREE = 1e12
#: Of the count-based measure on counts about 100; the paper does not say its own.
COUNT_RADIUS = 0.1
SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
#: Synthetic datasets whose barycentre is looked at: few enough to be quick, many enough that the
#: draws' own spread does not show.
DATASETS = 60


def counts(y: np.ndarray) -> Survey:
    frame = pd.DataFrame({"y": y})
    return Survey.from_frame(frame, outcome="y", transforms=Transform("identity"))


class Runs:
    """Fits of one survey under several schemes, with the same random numbers."""

    def __init__(
        self, model: Any, survey: Survey, m: int = DATASETS, draws: int = 250, seed: int = 2
    ) -> None:
        self.model, self.survey, self.m, self.seed = model, survey, m, seed
        self.plan = SamplingPlan(4, 250, draws)

    def __call__(self, **settings: Any) -> tuple[Any, list[np.ndarray]]:
        options = MechanismSettings(
            **{
                "epsilon": FREE,
                "m": self.m,
                "plan": self.plan,
                "origin": "density",
                "allow": ["shared_weights"],
                **settings,
            }
        )
        survey = self.survey
        private, fit = run(
            self.model, survey.design, survey.confidential, options,
            np.random.default_rng(self.seed),
        )  # fmt: skip
        data = synthesize(
            self.model, survey.design, private, replicates_per_draw=1, scale_to=None,
            rng=np.random.default_rng(self.seed + 1), variance="release",
        )  # fmt: skip
        return fit, [each.outcome[:, 0] for each in data]

    def target(self, fit: Any) -> float:
        """The epsilon whose target bound is the bound of a fit."""
        return 2.0 * self.m * fit.realised_bound


def weights_of(fit: Any) -> dict[str, Any]:
    """Bound and weights of a fit, and how bounds hang on weights among down-weighted records."""
    alpha, bounds = fit.risk_weights, fit.lipschitz_by_record
    held = (alpha > 0) & (alpha < 1)
    spread = float(np.std(np.log(bounds[held]))) if held.any() else 0.0
    return {
        "bound": fit.realised_bound,
        "unweighted_bound": fit.unweighted_bound,
        "fits": len(fit.search),
        "mean_weight": float(alpha.mean()),
        "weight_quantiles": dict(zip(map(str, SHARES), np.quantile(alpha, SHARES), strict=True)),
        "records_held": int(held.sum()),
        "sd_log_bound_of_held": spread,
        "bound_quantiles": dict(zip(map(str, SHARES), np.quantile(bounds, SHARES), strict=True)),
    }


def mixture(seeds: tuple[int, ...]) -> dict[str, Any]:
    """[R] 2.2: LW with scale 1, CW at the same bound, each before and after re-weighting."""
    return {"databases": [_mixture_database(seed) for seed in seeds], "published": _published()}


def _mixture_database(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    size = np.where(rng.random(1000) < 0.2, 5, 20)
    y = rng.negative_binomial(size, size / (size + 100.0))
    # Of its own for each database: shared, they would move all of them alike.
    runs = Runs(get_model("negative_binomial"), counts(y), seed=1000 + 2 * seed)
    found: dict[str, Any] = {"Unweighted": runs(risk="none")}
    found["LW"] = runs(weights="linear", scale=1.0)
    target = runs.target(found["LW"][0])
    # Weights are given: the target decides nothing, and other draws may pass it a little.
    found["LW_final"] = runs(weights="linear", scale=1.0, reweight=True, epsilon=1.2 * target)
    measure = CountBased(COUNT_RADIUS)
    found["CW"] = runs(risk=measure, epsilon=target)
    scale = _scale_of(found["CW"][0], measure, y)
    found["CW_final"] = runs(risk=measure, scale=scale, reweight=True, epsilon=target)
    schemes = {}
    for name, (fit, data) in found.items():
        data_row, row = _utility(y.astype(float), data)
        schemes[name] = {**weights_of(fit), **row}
    return {"seed": seed, "data": data_row, "schemes": schemes}


def _scale_of(fit: Any, measure: CountBased, y: np.ndarray) -> float:
    """The scale that a search has found: weights over 1 - risk where they are not clipped."""
    from surveysynth.mechanisms.pseudo_posterior.risk import RiskData

    risks = measure.risks(RiskData(y[:, None].astype(float), y, pd.DataFrame(index=range(y.size))))
    inside = (fit.risk_weights > 0) & (fit.risk_weights < 1)
    return float(np.median(fit.risk_weights[inside] / (1.0 - risks[inside])))


def _utility(
    y: np.ndarray, data: list[np.ndarray], quantiles: tuple[float, ...] = (0.15, 0.9),
    resamples: int = 1000,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Mean, median and quantiles of the records and of the datasets' barycentre, the mean of their
    order statistics, with percentile intervals; of the barycentre also the distance to the
    records."""
    rng = np.random.default_rng(4)
    names = ["mean", "median", *(f"q{100 * share:g}" for share in quantiles)]

    def estimates(values: np.ndarray) -> np.ndarray:
        of_shares = np.quantile(values, [0.5, *quantiles], axis=1, method="inverted_cdf")
        return np.vstack([values.mean(axis=1), of_shares])

    def found(values: np.ndarray) -> dict[str, Any]:
        drawn = [values[rng.integers(0, values.size, values.size)] for _ in range(resamples)]
        ends = np.quantile(np.hstack([estimates(each[None]) for each in drawn]), [0.025, 0.975],
                           axis=1).T  # fmt: skip
        return {"estimates": dict(zip(names, estimates(values[None])[:, 0], strict=True)),
                "intervals": dict(zip(names, ends.tolist(), strict=True))}  # fmt: skip

    centre = np.mean(np.sort(data, axis=1), axis=0)
    return found(np.sort(y)), {"ks": float(ks_2samp(centre, y).statistic), **found(centre)}


def _published() -> dict[str, Any]:
    table = pd.read_csv(LITERATURE / "reweighting_negbin_mixture_table1.csv")
    published: dict[str, Any] = {}
    for row in table.itertuples():
        published.setdefault(row.scheme, {})[row.estimand] = [row.ci_lower, row.ci_upper]
    return published


def poisson(seeds: tuple[int, ...]) -> dict[str, Any]:
    """[R], early version, 3.1: LW with scale 1; CW and scalar weights at its bound."""
    return {"databases": [_poisson_database(seed) for seed in seeds]}


def _poisson_database(seed: int) -> dict[str, Any]:
    y = np.random.default_rng(seed).poisson(100, 1000)
    runs = Runs(get_model("poisson"), counts(y), m=3)
    fits = {"LW": runs(weights="linear", scale=1.0)[0]}
    target = runs.target(fits["LW"])
    fits["CW"] = runs(risk=CountBased(COUNT_RADIUS), epsilon=target)[0]
    fits["SW"] = runs(risk="scalar", epsilon=target)[0]
    return {"seed": seed, "schemes": {name: weights_of(fit) for name, fit in fits.items()}}


PATTERN = ("sex", "region", "age_group")
#: Of the mixture: what no income is, what most are, and what both leave.
COMPONENTS = 3


def income_survey(path: Path) -> Survey:
    """Family income with what an intruder may know; blank regions are a level of their own."""
    frame = pd.read_csv(path, dtype={"region": str})
    frame["region"] = frame["region"].fillna("not told")
    frame["age_group"] = pd.cut(
        frame["age"], [0, 29, 39, 49, 64, 200], labels=["-29", "30-39", "40-49", "50-64", "65-"]
    ).astype(str)
    frame["earner"] = np.where(frame["earners"] > 0, "yes", "no")
    frame["degree"] = np.where(frame["education"] >= 7, "yes", "no")
    return Survey.from_frame(
        frame[[*PATTERN, "earner", "degree", "income"]],
        outcome="income",
        predictors="sex + region + age_group + earner + degree",
        transforms=Transform("asinh", scale=10_000.0),
    )


def income(path: Path, model: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """[S]: CW and pairwise weights within patterns, radius 20%, as they are there, 1 - risk, and at
    the bound of LW with scale 1; topcoding at the 97.5% quantile beside. Also the risks and weights
    of every record."""
    survey = income_survey(path)
    y, frame = survey.confidential.outcome[:, 0], survey.design.frame
    mixture = model == "normal_mixture"
    # A mixture's draws hang together more, and the gates on convergence want enough of them.
    options = {"components": COMPONENTS} if mixture else {}
    runs = Runs(get_model(model, **options), survey, m=20, draws=400 if mixture else 250)
    schemes: dict[str, dict[str, Any]] = {
        "Unweighted": {"risk": "none"},
        "LW": {"weights": "linear", "scale": 1.0},
        "CW": {"risk": CountBased(0.2, PATTERN)},
        "Pairwise": {"risk": Pairwise(0.2, PATTERN)},
        "CW at scale 1": {"risk": CountBased(0.2, PATTERN), "scale": 1.0, "epsilon": FREE},
        "Pairwise at scale 1": {"risk": Pairwise(0.2, PATTERN), "scale": 1.0, "epsilon": FREE},
    }
    target = FREE
    rows, records, before = {}, {}, None
    for name, settings in schemes.items():
        fit, data = runs(**{"epsilon": target, **settings})
        target = runs.target(fit) if name == "LW" else target
        risk = identification_risk(y, data, radius=0.2, frame=frame, pattern=PATTERN)
        data_row, row = _utility(y, data, quantiles=(0.15, 0.9, 0.975), resamples=200)
        before = risk.before
        rows[name] = {**weights_of(fit), **_risk_row(risk), **row}
        records |= {f"{name} risk": risk.after, f"{name} weight": fit.risk_weights}
    coded = np.minimum(y, np.quantile(y, 0.975, method="inverted_cdf"))
    topped = identification_risk(y, [coded], radius=0.2, frame=frame, pattern=PATTERN)
    rows["Topcoded"] = _risk_row(topped)
    records |= {"before": before, "Topcoded risk": topped.after}
    result = {"model": model, **options, "n": y.size, "data": data_row, "schemes": rows}
    return result, pd.DataFrame(records)


def _risk_row(risk: Any) -> dict[str, Any]:
    """Mean and spread of the risk after synthesis, and by fifth of the risk before."""
    order = np.argsort(risk.before, kind="stable")
    fifths = [float(risk.after[part].mean()) for part in np.array_split(order, 5)]
    return {
        "risk_before_mean": float(risk.before.mean()),
        "risk_after_mean": float(risk.after.mean()),
        "risk_after_sd": float(risk.after.std()),
        "risk_after_quantiles": dict(
            zip(map(str, SHARES), np.quantile(risk.after, SHARES), strict=True)
        ),
        "risk_after_by_fifth_before": fifths,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("mixture", "poisson", "income"))
    parser.add_argument("--data", type=Path, default=CE_DATA, help="ce2015q3.csv")
    parser.add_argument("--model", default="normal", help="synthesizer of income")
    parser.add_argument("--figures", type=Path, help="folder for figures of the income study")
    arguments = parser.parse_args()
    content = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    studies: dict[str, Any] = {
        "mixture": lambda: mixture(tuple(range(1, 21))),
        "poisson": lambda: poisson((1, 2, 3)),
        "income": lambda: _income_with_figures(arguments),
    }
    for name, study in studies.items():
        if arguments.only in (None, name):
            begun = time.process_time()
            # That of the mixture stands beside that of the regression.
            mixed = name == "income" and arguments.model == "normal_mixture"
            kept = "income_mixture" if mixed else name
            content[kept] = study()
            content[kept]["processor_seconds"] = round(time.process_time() - begun, 1)
            content[kept]["date"] = datetime.now(UTC).date().isoformat()
            content[kept]["versions"] = library_versions()
            content["count_radius"] = COUNT_RADIUS
    GOLDEN.write_text(json.dumps(_rounded(content), indent=1) + "\n")


def _income_with_figures(arguments: argparse.Namespace) -> dict[str, Any]:
    result, records = income(arguments.data, arguments.model)
    if arguments.figures is not None:
        from tests.long_runs import risk_figures

        arguments.figures.mkdir(parents=True, exist_ok=True)
        names = [name for name in result["schemes"] if name != "Topcoded"]
        risks = {"Confidential": records["before"]} | {n: records[f"{n} risk"] for n in names}
        shown = {name: values.to_numpy() for name, values in risks.items()}
        weights = {n: records[f"{n} weight"].to_numpy() for n in names if n != "Unweighted"}
        drawn = {
            "risk_distributions": risk_figures.identification_violins(shown),
            "risk_against_before": risk_figures.identification_against_before(shown),
            "risk_weights": risk_figures.weight_violins(weights),
        }
        for name, figure in drawn.items():
            figure.savefig(arguments.figures / f"{name}.png", dpi=110)
    return result


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.5g}")
    return int(value) if isinstance(value, np.integer) else value


if __name__ == "__main__":
    main()
