"""Times as events, callers and consumers write them, in milliseconds since the epoch."""
