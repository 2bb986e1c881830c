"""List input files, fetch and decompress them, and read the members of archives."""
