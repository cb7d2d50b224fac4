"""Samplers and what tells whether they converged."""
