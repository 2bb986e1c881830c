"""Read, cache and search zone maps."""
