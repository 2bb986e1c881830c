"""Logs that lie outside the lake: read where they are, never written."""
