"""A survey, validated once and split into its public and its confidential half."""
