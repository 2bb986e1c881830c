"""Reads of windows: of time, of offsets, around many moments."""
