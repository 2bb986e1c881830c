"""Maintenance of an existing lake: verify, re-index, repair, vacuum."""
