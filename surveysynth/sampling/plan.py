"""Size of a fit."""

from dataclasses import dataclass

from surveysynth.errors import InputError


@dataclass(frozen=True)
class SamplingPlan:
    """Size of a fit, fixed before the data are seen: S = chains * draws kept draws.

    Parameters
    ----------
    chains
        Independent runs of the sampler.
    warmup, draws
        Iterations of each chain that are discarded and kept.

    Raises
    ------
    InputError
        For numbers that are too small.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.SamplingPlan(chains=4, draws=250).kept
    1000
    """

    chains: int = 4
    warmup: int = 250
    draws: int = 250

    def __post_init__(self) -> None:
        for name, least in (("chains", 1), ("warmup", 0), ("draws", 4)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}, got {value!r}."
                )

    @property
    def kept(self) -> int:
        """S, the number of kept draws."""
        return self.chains * self.draws
