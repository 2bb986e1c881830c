"""Write the blobs of a piece as segments."""
