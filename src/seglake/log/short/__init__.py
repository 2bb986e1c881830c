"""Short windows of a local lake, read in one call of a kernel."""
