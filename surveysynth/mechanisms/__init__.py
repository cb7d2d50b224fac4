"""Mechanisms: from a confidential survey to draws that may be published."""
