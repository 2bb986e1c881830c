"""Which segments, runs and sources exist: a Delta table, and its versions in memory.

`table` opens the catalog, loads its versions, reads their rows, and commits a `topic_change`.
`transaction` tries a commit until it holds, and `attempts` has the objects that say what became of
it. `retention` finds what the retained versions need. `schema` defines the rows. `version` holds a
version in memory, `delta` the files of a Delta table, `quarantine` the table of rejects.
"""
