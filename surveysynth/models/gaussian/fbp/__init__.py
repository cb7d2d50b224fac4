"""FBP: fully Bayes for the population."""
