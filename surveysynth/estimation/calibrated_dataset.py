"""Synthetic datasets with calibrated weights: post-processing, free of privacy cost."""

from dataclasses import replace

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.margins_of_calibration import Calibration
from surveysynth.inference.synthesis import SyntheticDataset


def calibrated_dataset(
    calibration: Calibration, dataset: SyntheticDataset
) -> SyntheticDataset:
    """Return a synthetic dataset with calibrated weights; its own become base weights.

    Raises ``InputError``, with the number of the dataset, where they cannot be calibrated.
    """
    try:
        weight = pair = twelve_digits(
            calibration.calibrate(dataset.weight, dataset.outcome).weight
        )
        if dataset.separate_pair:
            pair = twelve_digits(
                calibration.calibrate(dataset.variance_weight, dataset.variance_outcome).weight
            )
    except InputError as error:
        raise InputError(
            f"synthetic dataset {dataset.replicate} of draw {dataset.draw}: {error}"
        ) from None
    return replace(
        dataset, weight=weight, variance_weight=pair,
        base_weight=dataset.weight, variance_base_weight=dataset.variance_weight,
    )  # fmt: skip


def twelve_digits(weight: FloatArray) -> FloatArray:
    """Round weights (n,): sums of the last digits differ between processors."""
    return np.array([float(f"{each:.11e}") for each in weight])


def calibrations_of(
    calibration: Calibration | None, dataset: SyntheticDataset
) -> tuple[CalibratedWeights | None, CalibratedWeights | None]:
    """Return the calibrated weights of a dataset, and those of its pair for variances."""
    if calibration is None or dataset.base_weight is None or dataset.variance_base_weight is None:
        return None, None
    own = calibration.again(dataset.weight, dataset.base_weight, dataset.outcome)
    if not dataset.separate_pair:
        return own, own
    return own, calibration.again(
        dataset.variance_weight, dataset.variance_base_weight, dataset.variance_outcome
    )
