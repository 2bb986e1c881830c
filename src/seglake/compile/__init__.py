"""Compile and cache kernels, and replace kernels that are not compiled yet."""
