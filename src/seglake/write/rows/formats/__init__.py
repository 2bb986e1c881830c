"""One module per input format with its kernels, and the registry of all formats."""
