"""Versions of the catalog in memory, and the data files that they are made from."""
