"""Turn a unit of input into sorted, encoded blobs."""
