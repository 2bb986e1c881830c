"""A Delta table as files: actions, commits, data files, and the calls of delta-rs."""
