"""Compact topics by key: keep only the latest record of each key, like Kafka's log cleaner.

`compact` decides which log partitions are due, and commits the result. `passes` finds the records
to keep, and writes their segments. `latest_kernels` has the compiled loops of the passes.
"""
