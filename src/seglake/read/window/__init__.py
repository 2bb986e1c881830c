"""Read records by time, by offset, and around the times of other rows."""
