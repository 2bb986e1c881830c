"""Maintenance of an existing lake: its health, its lifecycle, and vacuum."""
