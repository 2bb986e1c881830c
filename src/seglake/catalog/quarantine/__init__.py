"""Read and write the quarantine, a Delta table of input rows that could not become records."""
