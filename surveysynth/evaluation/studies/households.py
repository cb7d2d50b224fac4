"""A simulated population of households with outcomes of several kinds."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

N_HOUSEHOLDS = 30_000
REGIONS = ("north", "east", "south", "west")
HEATING = ("gas", "electric", "oil")

#: Shares of heating by tenure, owners first.
_HEATING_SHARES = np.array([[0.55, 0.25, 0.20], [0.40, 0.50, 0.10]])


def simulate_households(rng: np.random.Generator) -> "pd.DataFrame":
    """One row a household: region, tenure, income (a year), insured, heating, size.

    A tenth of the owners and a fifth of the tenants have no income; the others' is a gamma variable
    of shape 2, with a mean by region and tenure. Insurance becomes likelier with income. The
    measure of size of a PPS sample rises with income, so that the sampling is informative.
    """
    import pandas as pd

    n = N_HOUSEHOLDS
    region, owner = rng.integers(0, len(REGIONS), n), rng.random(n) < 0.6
    mean = 30_000 * (1 + 0.12 * region) * np.where(owner, 1.4, 1.0)
    amount = rng.gamma(2.0, mean / 2)
    income = np.where(rng.random(n) < np.where(owner, 0.1, 0.2), 0.0, amount.round(-1))
    odds = np.exp(0.4 + 0.6 * owner + income / 40_000)
    insured = rng.random(n) < odds / (1 + odds)
    cumulated = _HEATING_SHARES.cumsum(axis=1)[np.where(owner, 0, 1)]
    heating = (rng.random(n)[:, None] > cumulated[:, :-1]).sum(axis=1)
    size = (income + 20_000) ** 0.7 * np.exp(rng.normal(0.0, 0.4, n))
    return pd.DataFrame(
        {
            "region": np.array(REGIONS)[region],
            "tenure": np.where(owner, "owner", "tenant"),
            "income": income,
            "insured": np.where(insured, "yes", "no"),
            "heating": np.array(HEATING)[heating],
            "size": size,
        }
    )
