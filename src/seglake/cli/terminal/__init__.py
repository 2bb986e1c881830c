"""The terminal: tables, lines of JSON, streams."""
