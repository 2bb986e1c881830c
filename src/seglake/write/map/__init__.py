"""The map side: a unit of input becomes sorted, encoded blobs."""
