"""Input files: how they are listed, fetched, decompressed and taken out of archives."""
