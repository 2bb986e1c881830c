"""Read and write the files of a Delta table, and call delta-rs."""
