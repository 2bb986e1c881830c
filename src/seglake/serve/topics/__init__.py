"""The topics that clients see: those of the lake, and windows, versions and replays of them."""
