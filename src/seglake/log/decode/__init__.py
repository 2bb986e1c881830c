"""Decode record batches to Arrow batches."""
