"""The size of a fit."""

from dataclasses import dataclass

from surveysynth.errors import InputError


@dataclass(frozen=True)
class SamplingPlan:
    """Size of a fit, fixed before the data are seen: S = chains * draws kept draws."""

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
