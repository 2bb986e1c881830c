"""Maintain an existing lake, for example check, repair and vacuum it, and compact its topics."""
