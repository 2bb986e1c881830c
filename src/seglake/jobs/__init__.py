"""Run commands as programs for spark-submit and schedulers, see `seglake.cli.submit`.

`python -m seglake.jobs.ingest` runs one job. `seglake jobs` prints the files for spark-submit.
"""
