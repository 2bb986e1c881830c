"""Search one index block, from its bytes to a record, for lookups."""
