"""Pack, store and order the blobs that map tasks pass to reduce tasks."""
