"""NUTS by nutpie on a density written in NumPy, with its gradient: no compiler, no PyMC, no numba.

Seeds come from the caller's generator, so equal statistics give equal draws; but NUTS adapts, and
a small change of the data changes every draw.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.sampling.plan import SamplingPlan

MAX_SEED = 2**31 - 1
#: A larger share of accepted proposals than Stan's and nutpie's 0.8: fewer divergent draws.
TARGET_ACCEPT = 0.8

#: u (d,) to the log density and its gradient (d,).
LogDensity = Callable[[FloatArray], tuple[float, FloatArray]]


@dataclass(frozen=True, repr=False)
class NutsDraws(Unpickled):
    """u (chains, draws, d) and whether a draw diverged (chains, draws)."""

    u: FloatArray
    divergent: BoolArray


def sample(
    log_density: LogDensity,
    start: Callable[[np.random.Generator], FloatArray],
    dimension: int,
    plan: SamplingPlan,
    rng: np.random.Generator,
    target_accept: float = TARGET_ACCEPT,
) -> NutsDraws:
    """Draws of ``plan`` from the density; ``start`` gives a chain's first point, (dimension,).

    Points where the density or its gradient is not finite are taken as divergent, not as errors.
    """
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    def quiet(u: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):
            return log_density(u)

    model = from_pyfunc(
        dimension,
        lambda: quiet,
        lambda *_: lambda u: {"u": u},
        [np.dtype(np.float64)],
        [(dimension,)],
        ["u"],
        make_initial_point_fn=lambda seed: start(np.random.default_rng(seed)),
    )
    with warnings.catch_warnings():
        # nutpie hands its draws to ArviZ, which warns of its own plans.
        warnings.simplefilter("ignore")
        # One core: the density is Python, and chains would only take turns.
        trace = nutpie.sample(
            model, draws=plan.draws, tune=plan.warmup, chains=plan.chains, cores=1,
            seed=int(rng.integers(1, MAX_SEED)), target_accept=target_accept,
            progress_bar=False, save_warmup=False,
        )  # fmt: skip
    u = np.asarray(trace.posterior["u"], dtype=np.float64)
    return NutsDraws(u, np.asarray(trace.sample_stats["diverging"], dtype=bool))
