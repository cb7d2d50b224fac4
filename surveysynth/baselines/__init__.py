"""Comparators beside synthesis: topcoding, noise, and a release of noisy tables."""
