"""Ingest raw event files or a DataFrame as Kafka segments, in one catalog commit.

The data flows through input → rows → map → spool → reduce. `driver` runs these steps and commits.
Callers use `api`.
"""
