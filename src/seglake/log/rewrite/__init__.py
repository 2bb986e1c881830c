"""Rewrite segments: some records of consecutive segments become one segment."""
