"""Which segments, runs and sources exist: a Delta table, and its versions in memory.

`table` opens the catalog, reads its versions, and commits a `topic_change` with its `manifest`.
`retention` knows what the retained versions need. `version` holds a version in memory, `delta` the
files of a Delta table, `quarantine` the table of rejects, `rows` the rows, a class per kind.
"""
