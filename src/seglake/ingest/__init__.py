"""Ingest: raw event files, or a DataFrame, become Kafka segments and one catalog commit."""
