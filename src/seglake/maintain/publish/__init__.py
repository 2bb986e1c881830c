"""Published tables: decode segments of a topic to a Delta table that equals the log."""
