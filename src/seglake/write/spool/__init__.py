"""What waits on storage between map and reduce: blobs, their packing, their order."""
