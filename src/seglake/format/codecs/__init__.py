"""Compress and decompress record batches, one batch or many together."""
