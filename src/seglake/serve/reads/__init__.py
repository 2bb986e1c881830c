"""Answer requests for metadata, offsets and records, and refuse requests that write."""
