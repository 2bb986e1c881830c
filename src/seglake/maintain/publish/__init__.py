"""Publish a topic as a Delta table, whose rows are the decoded records of the log."""
