"""The topics that clients see: those in the lake, and their windows, versions and tags."""
