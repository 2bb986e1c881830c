"""Byte ranges of logs, fetched, checked and cached."""
