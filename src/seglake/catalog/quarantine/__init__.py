"""Input rows that could not become records."""
