"""From private draws to published files: tables, microdata, statements, bundle."""
