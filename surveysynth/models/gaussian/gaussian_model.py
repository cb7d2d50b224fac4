"""What the Gaussian models share: records by cell of X, statistics, and streamed likelihoods."""

from abc import abstractmethod
from collections.abc import Iterator

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Model, Simulated, psu_codes
from surveysynth.models.parts import gaussian, log_lik
from surveysynth.models.parts.gaussian import GaussianRecords, GaussianStats
from surveysynth.models.parts.log_lik import QuadraticForm
from surveysynth.survey.survey import PublicDesign


class GaussianModel(Model):
    """A model whose log-likelihood is quadratic in the record z (n, q), given the cell of X and,
    where PSUs have effects, the PSU. Its samplers work on sums alone, any number of databases side
    by side, with common random numbers (``Streams``)."""

    batched = True
    common_random_numbers = True

    def records_from_simulated(
        self, design: PublicDesign, simulated: Simulated
    ) -> GaussianRecords:
        """Records of a dataset that is already on the model's scale."""
        matrix = design.matrix
        return GaussianRecords(matrix.x_cells, matrix.cell, simulated.z, psu_codes(self, design))

    def compress(self, records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
        """Weighted sufficient statistics (methods 4)."""
        return gaussian.compress(records, risk_weights)

    @abstractmethod
    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray, psu: IntArray | None = None
    ) -> QuadraticForm:
        """Coefficients of the log-likelihood about ``centre``: S draws, the blocks given."""

    def log_lik_blocks(
        self, theta: Theta, records: GaussianRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Streams unweighted log-likelihoods, (rows, (S, rows)) (methods 4)."""
        return log_lik.log_lik_blocks(self.quadratic_form, theta, records)
