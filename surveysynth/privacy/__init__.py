"""The arithmetic of the mechanism: bounds, risk weights, budget, statement."""
