"""Reads of windows: of times, of offsets, around many moments."""
