"""Reasons why goals are missed, from profiles of each part."""

WHY = {
    "window": """\
**Windows.** Most of the time of a window is spent in zstd: its Python library takes as long for
the same record batches, or longer. The first windows of a process also use memory for the first
time. Through Spark, a Python data source takes 50 to 65 ms even without rows, and both the
planner and the task open the lake.""",
    "scan": """\
**Full scans.** `format("seglake")` passes each row from Python to the JVM. This step takes as
long as Delta's whole scan, and decompressing zstd comes on top. Without Spark, zstd takes two
thirds of the time. The rest is spent on decoding varints and copying keys and values.""",
    "remote": """\
**Object store.** A sixth of the bytes of a window are zone maps and headers. In an ingest, the S3
server takes 1.5 to 1.7 s of the same two cores.""",
    "find": """\
**Searches.** A key has 60 to 80 events, nearly all of them in different index blocks. A block has
two record batches. Reading and decompressing all these batches takes two thirds of the time. An
index of single batches would halve this time, but needs another format.""",
}
