"""Probabilities of a multinomial logit, log p_c / p_0 = eta_c for c = 1 .. C - 1."""

import numpy as np

from surveysynth._support.types import FloatArray


def log_total(eta: FloatArray) -> FloatArray:
    """Return log(1 + sum of exp eta) over the last axis without overflow."""
    if eta.shape[-1] == 1:
        return np.asarray(np.logaddexp(0.0, eta[..., 0]), dtype=np.float64)
    largest = np.maximum(eta.max(-1), 0.0)
    rest = np.exp(eta - largest[..., None]).sum(-1) + np.exp(-largest)
    return np.asarray(largest + np.log(rest), dtype=np.float64)


def shares(eta: FloatArray) -> FloatArray:
    """Return probabilities (..., C - 1) of the categories but the first."""
    return np.asarray(np.exp(eta - log_total(eta)[..., None]), dtype=np.float64)


def log_shares(eta: FloatArray) -> FloatArray:
    """Return log probabilities (..., C) of all categories."""
    total = log_total(eta)[..., None]
    return np.concatenate([-total, eta - total], axis=-1)
