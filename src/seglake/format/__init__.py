"""Read and write Kafka's log format: batches, segments and indexes as bytes, without I/O."""
