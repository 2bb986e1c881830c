"""Run the map tasks, which convert rows of the input to sorted, encoded blobs."""
