"""Transforms that are learned from a noisy histogram of an outcome."""
