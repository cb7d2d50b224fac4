"""Posterior draws from noisy statistics: free, since nothing confidential enters."""
