"""Byte ranges of logs: fetched, checked, cached."""
