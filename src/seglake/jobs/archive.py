"""`seglake archive` as a job: spark-submit jobs/archive.py lake web --bootstrap host:9092.

Reads what the broker has of each topic and the lake has not, committed records only, and keeps
their offsets; no checkpoint is needed. spark-submit needs the jars of Spark's Kafka source: --jars
"$(python -m seglake.session kafka-jars)".

Exit codes: 0 done, or nothing was new; 4 done, but the broker had deleted records that were not
archived yet; 2 bad arguments, or a topic that is gone or was made again; 1 anything else.
"""

from functools import partial

from seglake.cli.kafka import archive
from seglake.cli.submit import submit

main = partial(submit, archive)

if __name__ == "__main__":
    raise SystemExit(main())
