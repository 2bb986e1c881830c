"""Handle columns of text: spans over shared buffers, and the kernels that scan and build them."""
