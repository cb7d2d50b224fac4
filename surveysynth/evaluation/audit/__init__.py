"""Tests of a mechanism's guarantee on simulated databases that differ in one record."""
