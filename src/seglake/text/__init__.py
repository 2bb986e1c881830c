"""Scan, parse and build columns of text. Their items are spans of bytes in shared buffers."""
