"""The former place of a constant of effects of PSUs."""

from surveysynth.models.units import LOGISTIC_VARIANCE

__all__ = ["LOGISTIC_VARIANCE"]
