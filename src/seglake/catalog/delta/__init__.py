"""The catalog's Delta table as files: commits, data files, what delta-rs does."""
