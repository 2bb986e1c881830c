"""Read windows: of times, of offsets, and around many moments."""
