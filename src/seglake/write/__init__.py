"""The write side: raw event files, or a DataFrame, become Kafka segments and one catalog commit.

input → rows → map → spool → reduce → one commit. `driver` runs the steps. Callers use `api`.
"""
