"""The topics that clients see: topics of the lake, and their windows, versions and tags."""
