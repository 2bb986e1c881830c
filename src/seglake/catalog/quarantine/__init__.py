"""The quarantine, a Delta table of the input rows that could not become records."""
