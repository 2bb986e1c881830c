"""Segments written again: some records of consecutive segments become one segment."""
