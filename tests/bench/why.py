"""What profiles say of the parts that miss a goal."""

WHY = {
    "ingest": """\
A third of the time is zstd. In order of time, a tenth is the spool, through which every record is
written plain and read again
([decision 18](decisions/0018-no-finished-batches-in-order-of-time.md)).""",
    "lookup": """\
A new lookup decompresses one batch, 16 KiB of records: *zstd alone* takes 15 of its 27 µs, and
Kafka's class takes 57 for all. After other work even what was read before takes 32 µs instead of 4:
the interpreter's own code and objects have left the caches, which costs the JVM less. The p99 is
the machine's: of the slowest 25 of 2,000 lookups, one was the same in three runs.""",
    "window": """\
The time of a window with zstd or lz4 is mostly the codec's: its Python library alone takes as long,
or longer. Each of a process's first windows uses memory for the first time: 680 pages in one of
60 s. A Python data source without rows takes 50
to 65 ms of a window through `format("seglake")`; the rest is the lake, which the planner opens and
the task opens again, and in a long window the way of its rows from Python to the JVM.""",
    "scan": """\
*zstd alone* takes two thirds of the time; the rest is the varints of the records, and the copy of
keys and values into columns. [Decision 33](decisions/0033-floors-beside-goals.md) has what
Spark's way from Python takes.""",
    "remote": """\
A search for a key waits for zone map and key index, then for their pages, then for some 70 ranges
of the log, which are asked for 40 at a time: more at once take longer here. Of the bytes of a
window, a sixth are fences and entries of zone maps and headers. The S3 server and the wire of an
ingest take 1.5 to 1.7 s of the same two cores.""",
    "growth": """\
Measured apart, an *again* lookup in a log of 3.5 GB takes 6 to 7 µs, as in a short one, if all
times are from the same copy, and 9 µs or more if they are from all 100: more arrays are in use than
the processor's caches hold.""",
    "merge": """\
A merge copies record batches, but zone maps need the time of every record, so it decompresses all
of them, and zstd does that no faster. Small segments have 3 KB each: what counts is
the time to open, read and check a file, not bytes.""",
    "archive": """\
Of the archive's time, a half is Spark's Kafka source alone, and a fifth more its way to Python
workers; Delta's writer stays in the JVM.""",
    "kafka": """\
Zone maps need the time of every record, so an import decompresses all of the log: zstd and lz4 do
not do that faster. What has no codec goes as fast as the disk takes it.""",
    "serve": """\
The rate of the Java consumer differs by some percent from run to run: runs of one server lay on
both sides of the broker's rate. A lookup takes 10 to 50 µs of an answer to ListOffsets; the rest is
the event loop and the parser, which are Python. The median of quiet runs was 0.45, 0.73 and 1.14 of
the broker's: the broker's own differs more than ours.""",
    "catalog": """\
A retention of this lake read 345 KB of the catalog, and reads 72 KB now: files of a few rows have
neither Parquet's statistics nor Arrow's schema any more, and rows of runs are not read. Two thirds
are the rows of the segments that go.""",
    "find": """\
The 60 to 80 events of a key stand in almost as many index blocks, each of two record batches of
16 KiB, and all of these are read and decompressed, which is two thirds of the time of a key. An
index of single batches would halve that, in another format.""",
}
