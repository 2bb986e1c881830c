"""A version of the catalog in memory, and the data files that it is made from."""
