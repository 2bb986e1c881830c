"""Rewrite consecutive segments as one segment, with only the records that a rule keeps."""
