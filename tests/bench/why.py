"""Reasons why goals are missed, from profiles of each part."""

WHY = {
    "ingest": """\
**Ingest.** The ratios depend on the machine. On the same day and machine, an earlier commit
(54b64fde) had 5.24, 1.37, 3.42 and 1.02; side by side with it, the present commit takes 0.9 times
as long.""",
    "window": """\
**Windows.** Most of the time of a window is spent in zstd: its Python library takes as long for
the same record batches, or longer. The first window of a process loads seven kernels, and uses
memory for the first time. Through Spark, a Python data source takes 50 to 65 ms even without
rows, and both the planner and the task open the lake.""",
    "scan": """\
**Full scans.** `format("seglake")` passes each row from Python to the JVM. This step takes as
long as Delta's whole scan, and decompressing zstd comes on top. Without Spark, zstd takes two
thirds of the time. The rest is spent on decoding varints and copying keys and values.""",
    "remote": """\
**Object store.** A sixth of the bytes of a window are zone maps and headers. In an ingest, the S3
server takes 1.5 to 1.7 s of the same two cores.""",
    "cold": """\
**Cold start.** Most of the time is spent in imports: numba's alone takes 0.65 s here.""",
    "serve": """\
**Serving Kafka's clients.** The speeds of the two servers differ by at most 12 %, and an earlier
run on another machine had them in the opposite order.""",
    "find": """\
**Searches.** A key has 60 to 80 events, nearly all of them in different index blocks. A block has
two record batches. Reading and decompressing all these batches takes two thirds of the time. An
index of single batches would halve this time, but needs another format.""",
}
