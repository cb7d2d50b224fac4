"""A Stan program of the caller's own as a synthesizer."""
