"""Risk and utility of synthetic data beside the confidential data: never part of a release."""
