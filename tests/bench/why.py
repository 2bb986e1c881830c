"""What profiles say of the parts that miss a goal."""

WHY = {
    "window": """\
The time of a window with zstd or lz4 is mostly the codec's: its Python library alone takes as long,
or longer. Each of a process's first windows uses memory for the first time: 680 pages in one of
60 s. A Python data source without rows takes 50
to 65 ms of a window through `format("seglake")`; the rest is the lake, which the planner opens and
the task opens again, and in a long window the way of its rows from Python to the JVM.""",
    "scan": """\
*zstd alone* takes two thirds of the time; the rest is the varints of the records, and the copy of
keys and values into columns.""",
    "remote": """\
A search for a key waits for zone map and key index, then for their pages, then for some 70 ranges
of the log, which are asked for 40 at a time: more at once take longer here. Of the bytes of a
window, a sixth are fences and entries of zone maps and headers. The S3 server and the wire of an
ingest take 1.5 to 1.7 s of the same two cores.""",
    "find": """\
The 60 to 80 events of a key stand in almost as many index blocks, each of two record batches of
16 KiB, and all of these are read and decompressed, which is two thirds of the time of a key. An
index of single batches would halve that, in another format.""",
}
