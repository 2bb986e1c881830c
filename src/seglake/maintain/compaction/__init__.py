"""Compaction by key: the latest record of each key stays, as with Kafka's log cleaner.

`policy` says what is due, `keys` and `survivors` find the records that stay, `cleaning` writes
their segments, `compact` is the verb.
"""
