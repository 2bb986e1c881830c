"""One version of the catalog in memory."""
