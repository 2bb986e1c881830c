"""Whether a lake is sound: verified, its index files and its catalog rebuilt."""
