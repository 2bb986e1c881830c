"""What became of runs, and the rows that they rejected."""
