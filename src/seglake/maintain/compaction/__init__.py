"""Compaction by key: of each key the latest record stays, as Kafka's log cleaner has it.

`policy` says what is due, `keys` and `survivors` find the records that stay, `cleaning` writes
their segments, `compact` is the verb.
"""
