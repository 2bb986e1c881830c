"""The archive of live topics: what a broker has and the lake has not."""
