"""Synthesizers that users declare as Stan programs."""
