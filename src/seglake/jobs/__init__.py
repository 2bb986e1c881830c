"""Programs for spark-submit and schedulers: arguments → settings → one call → exit code.

`python -m seglake.jobs.ingest` runs one; `seglake jobs` prints the files, which spark-submit takes.
"""
