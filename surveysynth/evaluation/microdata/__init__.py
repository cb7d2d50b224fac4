"""Risk and utility of synthetic records compared with the confidential ones."""
