"""Compile and cache kernels, and run their calls until they are compiled."""
