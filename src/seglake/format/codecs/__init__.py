"""The codecs of record batches, one batch or many at once."""
