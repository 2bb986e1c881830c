"""Read the input formats. There is one module for each format, and a registry of all formats."""
