"""Lookups in one log partition: by offset, by time, one or many."""
