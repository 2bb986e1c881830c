"""Record batches become Arrow columns."""
