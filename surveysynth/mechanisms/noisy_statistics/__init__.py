"""Strict differential privacy at any n, by sufficient statistics with exact noise (zCDP)."""
