"""A survey, validated once and split into a public and a confidential half."""
