"""Repeated samples from simulated populations: coverage of the published intervals."""
