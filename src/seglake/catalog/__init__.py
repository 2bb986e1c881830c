"""Which segments, runs and sources exist: a Delta table, and its versions in memory.

`table.CatalogTable` opens, reads and commits; `snapshot.Snapshot` is a version to search in.
`rows` says what is stored, `deltalog` what a commit is, `compaction` which files are merged.
`quarantine` and `quarantine_table` keep the input rows that could not become records.
"""
