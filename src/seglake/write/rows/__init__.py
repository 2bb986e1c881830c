"""Rows of input files become records, or rejects with a reason."""
