"""What profiles say of the parts that miss a goal."""

WHY = {
    "ingest": """\
A third of the time is zstd. In order of time, a tenth is the spool, through which every record is
written plain and read again
([decision 18](decisions/0018-no-finished-batches-in-order-of-time.md)).""",
    "lookup": """\
A new lookup decompresses one batch, 16 KiB of records, which zstd alone does in 24 µs of the 53
that such a lookup took when that was measured apart; without a codec it took 27, of which 3 are
the read of a block, and most of the rest Python calls. So 20 µs are below the floor of zstd there.
After other work of the caller even what was read before takes 40 µs instead of 13.""",
    "window": """\
A process that has planned a window has the kernels of short ones. One of its first windows starts
the threads that help, in 1.6 ms, and each uses memory for the first time: the longest took 3 to
5 ms when that was measured apart. Of a new window with zstd, zstd itself takes more than half, and
most of the rest is memory that is used for the first time: to copy 1.3 MB there took 0.8 ms, and
0.03 ms where memory is in use. In order of arrival the records of a window stand in almost twice as
many batches. `format("seglake")` is as fast as Spark lets it be: a window of 1 s took 116 ms, a
Python data source that reads nothing 114. `events_between` spends most of the time of a long window
on the way from Python to the JVM and back.""",
    "scan": """\
Without Spark, more than half of the time is zstd. On Spark, the records of a Python data source go
from a Python worker to the JVM through a socket as Arrow batches, and there become rows one by one;
Delta's reader is in the JVM, and works on columns. An aggregate over two columns takes Delta less
time than to hand out their rows to `noop`: rows are made of both sources' columns only there.""",
    "remote": """\
A search for a key waits for zone map and key index, then for their pages, then for some 70 ranges
of the log, which are asked for 40 at a time: more at once take longer here. Of the bytes of a
window, a sixth are fences and entries of zone maps and headers, which is the least that this format
allows. The S3 server of an ingest takes a quarter of the processor's time on the same cores.""",
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
