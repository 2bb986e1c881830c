"""Erase keys from a topic: find and remove records, rejects, and the objects that have them."""
