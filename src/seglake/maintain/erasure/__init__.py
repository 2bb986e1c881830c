"""Erase keys from a topic, from its records, its rejects, and the objects that contain them."""
