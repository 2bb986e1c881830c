"""Zone maps: opened, cached, searched."""
