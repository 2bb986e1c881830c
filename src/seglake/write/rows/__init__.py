"""Rows of input files become records: one module per input format."""
