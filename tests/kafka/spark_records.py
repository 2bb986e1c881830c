"""What Spark's Kafka source gives: python -m tests.kafka.spark_records ADDRESS FILE TOPIC…

It runs in a process of its own, since Kafka's jars must be in the session from its start.
"""

import json
import sys
from pathlib import Path

from seglake.session import spark_session
from tests.judges.kafka_jars import spark_kafka_jars


def main(address: str, file: str, *topics: str) -> None:
    """Write [topic, partition, offset, timestamp in ms, crc32 of the value] of every record."""
    jars = ",".join(map(str, spark_kafka_jars()))
    conf = {"spark.jars": jars, "spark.ui.enabled": "false"}
    spark = spark_session("spark-records", master="local[2]", conf=conf)
    options = {
        "kafka.bootstrap.servers": address, "subscribe": ",".join(topics),
        "startingOffsets": "earliest", "failOnDataLoss": "true",
    }  # fmt: skip
    found = spark.read.format("kafka").options(**options).load()
    wanted = "topic", "partition", "offset", "unix_millis(timestamp)", "crc32(value)"
    rows = found.selectExpr(*wanted).collect()
    Path(file).write_text(json.dumps([list(row) for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
