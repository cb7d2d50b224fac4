"""Estimates of domains and their variances."""
