"""One module per input format, its kernels beside it, and the registry of all."""
