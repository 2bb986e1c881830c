"""Encode and decode record batches, segments and indexes in Kafka's log format, without I/O."""
