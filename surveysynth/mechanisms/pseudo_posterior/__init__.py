"""The pseudo-posterior mechanism (methods 2): risk weights, asymptotic differential privacy."""
