"""Run commands as programs for spark-submit and schedulers, see `seglake.cli.submit`.

`python -m seglake.jobs.ingest` runs one; `seglake jobs` prints the files, which spark-submit takes.
A command's arguments can be given by name here: `--root lake`.
"""
