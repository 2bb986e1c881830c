"""Erase the records and rejects with some keys from a topic, and from old objects and tags."""
