"""Strict differential privacy: sufficient statistics under noise, and their posterior."""
