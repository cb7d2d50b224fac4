"""Gaussian models: FBS, FBP, and normal regressions without a coefficient hierarchy."""
