"""Regressions of a count: Poisson and negative binomial."""
