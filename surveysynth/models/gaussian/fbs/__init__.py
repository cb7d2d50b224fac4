"""FBS: fully Bayes for the observed sample."""
