"""Keep versions of the catalog in memory, and load them from data files."""
