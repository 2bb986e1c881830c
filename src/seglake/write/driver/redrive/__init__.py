"""Redrives: rows that a run rejected, ingested later."""
