"""Noisy statistics of the general location model: counts of categories, and moments by block."""
