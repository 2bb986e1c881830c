"""What answers requests that read: metadata, offsets, records; and what refuses to write."""
