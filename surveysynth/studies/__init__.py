"""Simulated populations and sample designs (methods 7)."""
