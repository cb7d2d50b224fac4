"""Tests of what a mechanism promises, on simulated databases that differ in one record."""
