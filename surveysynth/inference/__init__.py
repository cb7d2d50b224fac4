"""From private draws to synthetic surveys: post-processing, free of confidential data."""
