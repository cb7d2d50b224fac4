"""The first specification of a survey, from its column names and a person's choices."""
