"""A Delta table as files: actions, commits, data files, and what delta-rs does."""
