"""How kernels are compiled and kept, and what answers until they are."""
