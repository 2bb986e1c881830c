"""Compile every kernel once, so that nobody's first command waits for it.

Kernels are compiled on first use and kept beside the sources (or, where those cannot be written, in the
user's cache). `python -m seglake.warm` takes a handful of events of each input format through the whole
path: read, encode with every codec, write, look up, read back. No JVM starts.
"""
