"""Samplers and convergence diagnostics."""
