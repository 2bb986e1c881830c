"""Compact topics, so that only the latest record of each key remains, like Kafka's log cleaner.

`compact` decides which log partitions are due, and commits the result. `passes` finds the records
to keep, and writes their segments. `latest_kernels` has the compiled loops of the passes.
"""
