"""Record batches to Arrow batches."""
