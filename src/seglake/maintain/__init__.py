"""Maintain an existing lake: check and repair it, expire and compact its topics, and vacuum it."""
