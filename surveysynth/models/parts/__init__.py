"""What several synthesizers share."""
