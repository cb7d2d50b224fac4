"""Building blocks that several synthesizers use."""
