"""Mechanisms: how confidential records become what may be released."""
