"""The gates on the fit that is released: one that has not converged is refused."""

from collections.abc import Mapping

from surveysynth._support.types import FloatArray
from surveysynth.errors import RefusedError
from surveysynth.sampling import diagnostics

MAX_R_HAT = 1.05
MIN_ESS = 100.0
MAX_DIVERGENT_SHARE = 0.01


class NotConvergedError(RefusedError):
    """A refusal that chains of another length may not meet: it tells nothing of the target."""


def check_convergence(
    monitored: Mapping[str, FloatArray], divergent: FloatArray | None
) -> tuple[dict[str, float], dict[str, float]]:
    """Largest R-hat and smallest ESS by parameter group; refuses a fit that has not converged.

    monitored: unconstrained scalars by group, (chains, draws, d); divergent (chains, draws), 1
    where a draw diverged, or None for a sampler that cannot diverge. Raises ``NotConvergedError``.
    """
    if divergent is not None and divergent.mean() > MAX_DIVERGENT_SHARE:
        raise NotConvergedError(
            f"More than {MAX_DIVERGENT_SHARE:.0%} of the draws diverged: the sampler could not "
            "follow the posterior, and its draws may miss a part of it. Raise warmup, raise "
            "adapt_delta towards 1 (a Stan program of your own) or write the program in other "
            "parameters, or use the engine 'embedded' where the model has it."
        )
    r_hat = {name: float(diagnostics.r_hat(draws).max()) for name, draws in monitored.items()}
    ess = {
        name: float(diagnostics.effective_sample_size(draws).min())
        for name, draws in monitored.items()
    }
    failing = sorted(
        name for name in monitored if not (r_hat[name] <= MAX_R_HAT and ess[name] >= MIN_ESS)
    )
    if failing:
        raise NotConvergedError(
            f"The fit has not converged (R-hat above {MAX_R_HAT} or an effective sample size "
            f"below {MIN_ESS:.0f} for {', '.join(failing)}): raise draws and warmup in "
            "[synthesizer]."
        )
    return r_hat, ess
