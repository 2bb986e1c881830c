"""Zone maps: read, cached, searched."""
