"""Serve a lake, read-only, to any Kafka client."""
