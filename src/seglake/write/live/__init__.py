"""Archive live topics: ingest what a broker has and the lake does not have yet."""
