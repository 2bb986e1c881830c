"""Bytes of record batches as they are stored: checked once, then sent."""
