"""Base class of the Gaussian models."""

from abc import abstractmethod
from collections.abc import Iterator

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import INTERACTION_PRIOR, Simulated
from surveysynth.models.parts import gaussian, log_lik
from surveysynth.models.parts.gaussian import GaussianRecords, GaussianStats
from surveysynth.models.parts.log_lik import QuadraticForm
from surveysynth.models.weighted import WeightedModel
from surveysynth.survey.survey import PublicDesign


class GaussianModel(WeightedModel):
    """A model whose log-likelihood is quadratic in the record z (n, q).

    The quadratic form depends on the cell of X. Samplers use sums alone, for any number of
    databases side by side, with common random numbers (``Streams``).
    """

    batched = True
    common_random_numbers = True

    def records_from_simulated(
        self, design: PublicDesign, simulated: Simulated
    ) -> GaussianRecords:
        """Return the records of a dataset on the model's scale."""
        matrix = design.matrix
        return GaussianRecords(matrix.x_cells, matrix.cell, simulated.z, matrix.shrunken)

    def compress(self, records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
        """Compute weighted sufficient statistics (methods 4), with the ridge on interactions."""
        stats = gaussian.compress(records, risk_weights)
        return stats.with_ridge(self.priors.get(INTERACTION_PRIOR))

    @abstractmethod
    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray
    ) -> QuadraticForm:
        """Return the coefficients of the log-likelihood about ``centre``.

        They are for S draws and the cells given.
        """

    def log_lik_blocks(
        self, theta: Theta, records: GaussianRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream unweighted log-likelihoods, (rows, (S, rows)) (methods 4)."""
        return log_lik.log_lik_blocks(self.quadratic_form, theta, records)
