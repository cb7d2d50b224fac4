"""Confidential records on the scale of the general location model."""

from dataclasses import dataclass

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.general_location.layout import Layout


@dataclass(frozen=True, repr=False)
class GeneralRecords(Unpickled):
    """Records by cell (n,) of X: categories (n, p), and z (n, q), whose absent values are zero."""

    layout: Layout
    cell: IntArray
    category: IntArray
    z: FloatArray
