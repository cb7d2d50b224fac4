"""The first specification of a survey, made of its column names and a person's choices."""
