"""Read and write logs: segments, ranged reads, caches, zone maps, decoding, writing, rewriting."""
