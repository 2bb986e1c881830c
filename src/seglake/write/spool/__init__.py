"""Blobs between map and reduce: where they wait, how they are packed, how they are ordered."""
