"""The reduce side: the blobs of a piece become segments."""
