"""Verify a lake, and rebuild its index files and its catalog."""
