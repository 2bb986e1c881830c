"""Records of a lake, and the files of a segment, written for people and programs."""
