"""Speed of count-based and pairwise risks: ``python tests/benchmarks/risk.py [RECORDS]``.

Skewed values with ties, zeros and negative ones; all records as one pattern, few patterns and
almost as many patterns as records. Not a test: machines are shared and noisy.
"""

import sys
import time

import numpy as np


def skewed(n: int, rng: np.random.Generator) -> np.ndarray:
    """Incomes in whole units, a tenth of them zero and some negative."""
    y = np.round(rng.lognormal(10.5, 1.0, n))
    y[rng.random(n) < 0.1] = 0.0
    return np.where(rng.random(n) < 0.01, -y, y)


def main(n: int) -> None:
    from surveysynth.mechanisms.pseudo_posterior.risk import count_risk, pairwise_risk

    rng = np.random.default_rng(1)
    y = skewed(n, rng)
    for patterns in (1, 40, n // 2):
        codes = np.unique(rng.integers(0, patterns, n), return_inverse=True)[1]
        for name, risk in (("count", count_risk), ("pairwise", pairwise_risk)):
            wall, processor = time.perf_counter(), time.process_time()
            risk(y, 0.2, codes)
            spent = time.perf_counter() - wall, time.process_time() - processor
            print(
                f"{name:<9} {n:>9,} records {patterns:>7,} patterns "
                f"{spent[0]:6.2f} s {spent[1]:6.2f} s cpu"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
