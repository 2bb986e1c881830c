"""The floor for logs: segments, ranged reads, caches, zone maps, decoding, writing, rewriting."""
