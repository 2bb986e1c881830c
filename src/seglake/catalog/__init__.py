"""Read and write the catalog, a Delta table of the segments, runs and sources of a lake.

`table` opens the catalog, and loads its versions. `rows` reads the rows of a version. `tags` finds
tags, and loads the versions that they name. `commits` commits a `topic_change`, `transaction`
retries a commit until it succeeds, and `attempts` has the objects of an attempt.
`retention` finds the rows and files that the retained versions need. `schema` defines the rows.
`version` has versions in memory, `delta` reads and writes the files of a Delta table, and
`quarantine` has the table of rejects.
"""
