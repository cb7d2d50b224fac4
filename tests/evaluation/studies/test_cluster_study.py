"""What ``python -m tests.long_runs.cluster_study`` found of standard errors by PSU, with
effects of PSUs and without, held against what it is for."""

import json
from pathlib import Path

import pandas as pd
import pytest

GOLDEN = Path(__file__).parents[2] / "golden"
#: Rows where all records of PSUs lie within, so that what is between them tells most.
WHOLE_PSUS = ("stratum", "overall")


def found() -> pd.DataFrame:
    table = pd.read_csv(GOLDEN / "cluster_study.csv", dtype={"epsilon": str})
    return table[table["rows"].isin(WHOLE_PSUS)]


@pytest.mark.parametrize("epsilon", ["1", "10.8"])
@pytest.mark.parametrize("model", ["fbs", "fbp"])
def test_intervals_cover_with_effects_and_not_without(model: str, epsilon: str) -> None:
    table = found().query("model == @model and epsilon == @epsilon")
    effects, without = (table[table["effects"] == word] for word in ("with", "without"))
    assert len(effects) == len(without) == 3
    # Of 0.95, Monte Carlo error of some 0.015 aside.
    assert effects["coverage"].min() > 0.91
    assert effects["se_over_sd"].between(0.95, 1.2).all()
    assert without["coverage"].max() < 0.87
    assert without["se_over_sd"].max() < 0.85


def test_sds_of_effects_must_follow_the_residual_scales() -> None:
    table = found().query("effects == 'with'")
    private = table[table["epsilon"].str.startswith("10.8")]
    keys = ["model", "statistic", "rows"]
    both = private.pivot_table(index=keys, columns="epsilon", values="se_over_sd")
    assert (both["10.8"] / both["10.8, SDs of PSUs as released"] > 1.05).all()


def test_no_sample_was_refused() -> None:
    facts = json.loads((GOLDEN / "cluster_study.json").read_text(encoding="utf-8"))
    assert len(facts["refused"]) == 8
    assert not any(facts["refused"].values())
