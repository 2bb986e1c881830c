"""Lookups in one log partition, by offset and by time, of one or of many."""
