"""ArviZ's R-hat (rank) and effective sample size (bulk) of the chains of ``test_convergence``:
``pip install "arviz<1"``, ``python -m tests.long_runs.arviz_values``.
"""

import json
import warnings
from importlib.metadata import version

from tests.sampling.test_convergence import CORRELATIONS, GOLDEN, SHAPES, D, odd_chains

with warnings.catch_warnings():
    # ArviZ announces its successor on import.
    warnings.simplefilter("ignore")
    from arviz.stats import ess, rhat


def main() -> None:
    """Write the committed values."""
    found: dict[str, object] = {"arviz": version("arviz")}
    for correlation in CORRELATIONS:
        for chains, draws in SHAPES:
            x = odd_chains(correlation, chains, draws)
            found[f"{correlation:g} {chains} {draws}"] = {
                "rhat": [float(rhat(x[..., j], method="rank")) for j in range(D)],
                "ess": [float(ess(x[..., j], method="bulk")) for j in range(D)],
            }
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
